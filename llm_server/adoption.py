"""Checkpoint folders for the engine trtllm, which are served where they lie."""

from pathlib import Path

from engines.folder import DESCRIPTION_FILE, EngineFolder, EngineFolderError, staged_folder
from llm_server import __version__, paths
from llm_server.config import ConfigError


def adopt(model: str, home: Path) -> Path:
    """Return the engine folder of a Hugging Face checkpoint, described below `home` unless it is already.

    Raises ConfigError where there is no such folder, TensorRTLLMError for a checkpoint that cannot be served.
    """
    from engines.trtllm.adopt import BUILDER, adopt_checkpoint, fingerprint  # here: others never need it

    path = Path(model).expanduser().resolve()
    if (path / DESCRIPTION_FILE).is_file():
        return path
    if not path.is_dir():
        raise ConfigError(f"the engine trtllm serves folders of Hugging Face checkpoints; there is no folder {path}")
    final = paths.engines(home) / f"{path.name}.trtllm"
    try:
        known = EngineFolder.load(final).description
    except EngineFolderError:
        known = None
    if known is not None and (known.builder, known.source, known.source_sha256) == (
        BUILDER,
        f"hf:{path}",
        fingerprint(path),
    ):
        return final
    with staged_folder(final) as staging:
        adopt_checkpoint(path, staging, {"llm-server": __version__})
    return final
