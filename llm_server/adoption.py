"""Models for the engine trtllm that are served where they lie: checkpoints, and engines that were built elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING

from engines.folder import EngineFolder, EngineFolderError, staged_folder
from engines.model_files import IR_FILE, ModelFormat
from engines.progress import Progress, silent
from llm_server import __version__, paths
from llm_server.config import ConfigError
from llm_server.pull import TENSORRT, find_folder, locked
from llm_server.sources import SourceError
from llm_server.sources.catalog import CATALOG

if TYPE_CHECKING:
    from engines.trtllm.adopt import Adoption

NEEDED = (
    "the engine trtllm needs a folder: a Hugging Face checkpoint, a TensorRT engine, or hf:org/name of a checkpoint"
)


def adopt(model: str, home: Path, tokenizer: Path | None = None, progress: Progress = silent) -> Path:
    """Return the engine folder of a model for TensorRT-LLM, described below `home` unless it is already.

    `model` is the name or path of an engine folder of this server, the folder of a Hugging Face checkpoint or of an
    engine that trtllm-build wrote, or `hf:org/name`. `tokenizer` is the folder of the tokenizer, by default the
    model's. Raises ConfigError where the model is of another kind, TensorRTLLMError where it cannot be served.
    """
    from engines.trtllm.adopt import Adoption  # here: others never need it

    if (folder := _described(model, home)) is not None:
        if tokenizer is not None:
            raise ConfigError(f"{folder} has a tokenizer of its own; leave --tokenizer out")
        return folder
    if model.startswith("hf:"):
        return _adopt_from_hub(model, home, progress)
    path = _model_folder(model)
    return _describe(Adoption.of(path, tokenizer), paths.engines(home) / f"{path.name}.{TENSORRT}", progress)


def _described(model: str, home: Path) -> Path | None:
    """Look for an engine folder with this name or path. Raises ConfigError for one of another engine."""
    folder = find_folder(model, home)
    if folder is None:
        return None
    folder = folder.resolve()
    made_for = EngineFolder.load(folder).description.engine
    if made_for != TENSORRT:
        raise ConfigError(f"{folder} was built for the engine {made_for}; {NEEDED}")
    return folder


def _model_folder(model: str) -> Path:
    if model in CATALOG:
        raise ConfigError(f"{model} is a GGUF file, which is for the engine openvino; {NEEDED}")
    path = Path(model.removeprefix("folder:")).expanduser().resolve()
    if path.is_file():
        raise ConfigError(f"{path} is a file; {NEEDED}")
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}; {NEEDED}")
    if (path / IR_FILE).is_file():
        raise ConfigError(f"{path} is a graph of OpenVINO; {NEEDED}")
    return path


def _adopt_from_hub(model: str, home: Path, progress: Progress) -> Path:
    """Fetch a checkpoint from the hub once, and describe it."""
    from engines.trtllm.adopt import Adoption
    from llm_server.sources.hub import HubSource

    try:
        source = HubSource(model.removeprefix("hf:"))
        checkpoint = paths.checkpoints(home) / source.text.removeprefix("hf:").replace("/", "--")
        with locked(checkpoint, progress):
            if not checkpoint.is_dir():
                if source.model_format() is not ModelFormat.HUGGING_FACE:
                    raise ConfigError(f"{model} has no Hugging Face checkpoint; {NEEDED}")
                with staged_folder(checkpoint) as staging:
                    source.fetch(staging, progress)
    except SourceError as exc:
        raise ConfigError(str(exc)) from exc
    except OSError as exc:
        raise ConfigError(f"{model} cannot be kept below {home}: {exc}") from exc
    final = paths.engines(home) / f"{source.name}.{TENSORRT}"
    return _describe(Adoption.of(checkpoint, source=source.text), final, progress)


def _describe(adoption: "Adoption", final: Path, progress: Progress) -> Path:
    with locked(final, progress):  # several ranks of a node start at the same time
        try:
            if adoption.is_up_to_date(EngineFolder.load(final).description):
                return final
        except EngineFolderError:
            pass
        with staged_folder(final) as staging:
            adoption.write(staging, {"llm-server": __version__})
    return final
