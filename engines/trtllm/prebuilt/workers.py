"""The processes that TensorRT-LLM spawned for the other GPUs of an engine.

It does not say when one of them is gone: a step that waits for it just never ends. They are children of this process
or of MPI's own helper, which is a child of this process, so they are looked for among its descendants.
"""

from pathlib import Path

import psutil


class Workers:
    """The processes that run an executable, as they were when this was made."""

    def __init__(self, executable: Path) -> None:
        self._processes = [
            process for process in psutil.Process().children(recursive=True) if _runs(process, str(executable))
        ]

    def failure(self) -> str | None:
        """Say that one is gone, if so."""
        return None if all(map(_lives, self._processes)) else "a worker of TensorRT-LLM is gone"


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _runs(process: psutil.Process, executable: str) -> bool:
    try:
        return executable in process.cmdline()
    except psutil.Error:
        return False
