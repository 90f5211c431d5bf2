"""From an engine folder to a running TensorRT-LLM: which of its two interfaces, and what this process is in it."""

from engines.config import EngineConfig
from engines.folder import EngineFolder
from engines.trtllm.checkpoints.loading import load_checkpoint
from engines.trtllm.location import ModelKind, ModelLocation
from engines.trtllm.parts import Parts
from engines.trtllm.prebuilt.loading import load_engine, serve_as_rank
from engines.trtllm.ranks import work_for_rank_0


def load_parts(folder: EngineFolder, config: EngineConfig) -> Parts:
    """Start TensorRT-LLM for a folder and return what an executor is made of. Raises TensorRTLLMError."""
    location = ModelLocation.read(folder.path)
    load = load_engine if location.kind is ModelKind.ENGINE else load_checkpoint
    return load(location.path, folder, config)


def work(folder: EngineFolder, config: EngineConfig) -> None:
    """Be a rank that does not serve, until the one that does has shut down. Raises TensorRTLLMError."""
    location = ModelLocation.read(folder.path)
    if location.kind is ModelKind.ENGINE:
        serve_as_rank(location.path, config)
    else:
        work_for_rank_0()
