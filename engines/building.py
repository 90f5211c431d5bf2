"""From a published model to an engine folder: what is asked for, and who can make it.

A builder is found by the name of its engine in a table of "module:function" strings; the table itself imports nothing.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

from engines.build_options import BuildMachine, EngineOptions
from engines.folder import EngineDescription, EngineFolder, ModelFacts
from engines.model_files import ModelFiles, ModelFormat
from engines.progress import Progress


class BuildError(Exception):
    """An engine folder could not be made of a model; the message says why in one line."""

    code = "engine_build_failed"


def discard(line: str) -> None:
    """Show a line to nobody."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A model, what is to become of it, and what engine.json shall say about where it came from.

    `name` is the model's name where it does not state one itself. `convert_env` is the folder of the environment that
    converts Hugging Face models; it need not exist until one is to be converted. `engine_options` and `machine` are for
    TensorRT engines; `show` is given each line that the vendor's tools print.
    """

    model: ModelFiles
    name: str
    source: str
    source_sha256: str
    precision: str = "f16"
    source_stamp: str | None = None
    source_revision: str | None = None
    convert_env: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    machine: BuildMachine = field(default_factory=BuildMachine)
    show: Callable[[str], None] = discard

    def describe(self, facts: ModelFacts, *, engine: str, builder: str) -> EngineDescription:
        """Say what engine.json shall say of the model."""
        stated = replace(facts, versions={**facts.versions, **self.versions})
        return EngineDescription(
            **stated.by_name(),
            engine=engine,
            source=self.source,
            source_sha256=self.source_sha256,
            source_stamp=self.source_stamp,
            source_revision=self.source_revision,
            builder=builder,
        )


class Build(Protocol):
    """A builder: writes an engine folder into the empty folder `target`. Raises BuildError."""

    def __call__(self, request: BuildRequest, target: Path, builder: str, progress: Progress, /) -> EngineFolder:
        """Build, record `builder` as the maker, and return the folder."""


@dataclass(frozen=True, slots=True)
class Builder:
    """The builder of one engine.

    `names` has the formats it reads and what engine.json calls the code that reads them: raise the number in a name
    when that code makes other folders than before, and they are built anew.
    """

    target: str
    names: Mapping[ModelFormat, str]
    precisions: tuple[str, ...]

    def made(self, builder: str) -> bool:
        """Whether a folder that names `builder` would come out the same today."""
        return builder in self.names.values()

    def refuse_other_formats(self, model: ModelFiles) -> None:
        """Raise BuildError for a model that this engine is not built from."""
        if model.format not in self.names:
            raise BuildError(
                f"{model.path} has the format {model.format}; this engine is built from {', '.join(self.names)}"
            )

    def build(self, request: BuildRequest, target: Path, progress: Progress) -> EngineFolder:
        """Build the engine folder inside the empty folder `target`. Raises BuildError."""
        self.refuse_other_formats(request.model)
        module, _, function = self.target.partition(":")
        build: Build = getattr(import_module(module), function)
        return build(request, target, self.names[request.model.format], progress)


BUILDERS: Mapping[str, Builder] = {
    "openvino": Builder(
        target="engines.openvino.builder:build_engine",
        names={
            ModelFormat.GGUF: "openvino-gguf-2",
            ModelFormat.OPENVINO_IR: "openvino-ir-2",
            ModelFormat.HUGGING_FACE: "openvino-hf-1",
        },
        precisions=("f16", "int8", "int4"),
    ),
    "trtllm": Builder(
        target="engines.trtllm.building.builder:build_engine",
        names={ModelFormat.HUGGING_FACE: "trtllm-engine-1"},
        precisions=("f16",),  # its engine_options say how the weights are stored
    ),
}
"""Name of an engine, as engine.json gives it, to its builder."""


def refuse_full_disk(folder: Path, needed_bytes: int) -> None:
    """Raise BuildError unless the disk of `folder` has so much room."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        needed, free = (f"{count / 2**20:.0f} MiB" for count in (needed_bytes, free_bytes))
        raise BuildError(f"the build needs {needed} of free disk space and finds {free}")
