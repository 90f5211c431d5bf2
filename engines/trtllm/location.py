"""Where the model of an engine folder lies, and what it is: the folder's trtllm.json.

Checkpoints, and engines that were built elsewhere, are served where they lie; an engine that was built here is inside
the folder.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engines.trtllm.errors import TensorRTLLMError

LOCATION_FILE = "trtllm.json"


class ModelKind(StrEnum):
    """What TensorRT-LLM is given."""

    CHECKPOINT = "checkpoint"
    """A Hugging Face checkpoint, for the PyTorch backend."""
    ENGINE = "engine"
    """A prebuilt TensorRT engine, for the C++ runtime."""


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A model and its folder."""

    kind: ModelKind
    path: Path

    @classmethod
    def read(cls, folder: Path) -> "ModelLocation":
        """Read trtllm.json of an engine folder. Raises TensorRTLLMError where it is wrong or the model is gone."""
        file = folder / LOCATION_FILE
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            location = cls(ModelKind(document["kind"]), folder / document["path"])
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise TensorRTLLMError(f"{file} does not say where the model is: {exc!r}") from exc
        if not location.path.is_dir():
            raise TensorRTLLMError(f"{folder} was made for the {location.kind} {location.path}, which is gone")
        return location

    def write(self, folder: Path) -> None:
        """Write trtllm.json into an engine folder; a model inside the folder moves along with it."""
        path = self.path.relative_to(folder) if self.path.is_relative_to(folder) else self.path
        text = json.dumps({"kind": self.kind, "path": str(path)}, indent=2)
        (folder / LOCATION_FILE).write_text(text + "\n", encoding="utf-8")
