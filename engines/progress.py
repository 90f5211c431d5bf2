"""How long work reports that it moves: one callback, a fixed set of phases."""

from enum import StrEnum
from typing import Protocol


class Phase(StrEnum):
    """The phases between a model source and a served engine folder, in the order they happen."""

    WAIT = "wait"  # another process builds the same engine folder
    DOWNLOAD = "download"  # bytes
    VERIFY = "verify"  # bytes hashed
    UNPACK = "unpack"  # bytes
    DEQUANTISE = "dequantise"  # tensors
    CONVERT = "convert"  # steps: the graph is built in a child process
    BUILD = "build"  # TensorRT chooses its kernels, in a child process
    QUANTISE = "quantise"  # two steps: the weights, then what they lost
    WRITE = "write"  # files described in engine.json


class Progress(Protocol):
    """Whoever shows progress: a plain function will do."""

    def __call__(self, phase: Phase, done: int, total: int | None, /) -> None:
        """Take note of the running phase, of what is done of it, and of the total, None while that is unknown."""


def silent(phase: Phase, done: int, total: int | None, /) -> None:
    """Report progress to nobody."""
