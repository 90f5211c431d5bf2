"""From a prebuilt engine to a running C++ executor and the driver over it."""

import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from engines.config import EngineConfig
from engines.contract import ExecutorInfo
from engines.folder import EngineFolder
from engines.guides import GuideCompiler
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.parts import Parts
from engines.trtllm.prebuilt.driver import EngineDriver
from engines.trtllm.prebuilt.engine import PrebuiltEngine
from engines.trtllm.prebuilt.requests import RequestTranslator
from engines.trtllm.prebuilt.settings import EngineSettings, worker_executable
from engines.trtllm.prebuilt.workers import Workers
from engines.trtllm.ranks import Launch
from engines.trtllm.runtime import import_part, import_tensorrt_llm
from engines.trtllm.support import Refusals, Sampling

log = logging.getLogger(__name__)

BINDINGS = "tensorrt_llm.bindings.executor"


def load_engine(path: Path, folder: EngineFolder, config: EngineConfig) -> Parts:
    """Start the executor of an engine; `folder` describes its model. Raises TensorRTLLMError."""
    settings = _settings(path, config)
    engine, description = settings.engine, folder.description
    top = import_tensorrt_llm()
    executor = _construct(settings, top)
    guides = GuideCompiler(folder.tokenizer_path, engine.vocab_size, description.end_token_ids)
    translator = RequestTranslator(
        import_part(BINDINGS), import_part("torch"), engine, description.end_token_ids[0], guides
    )
    workers = Workers(worker_executable(_package(top))) if settings.is_orchestrator else None
    way = Sampling.ENGINE if config.trtllm.lookahead is None else Sampling.LOOKAHEAD
    return Parts(
        EngineDriver(executor, translator, engine.vocab_size, engine.tokens_per_block, workers),
        _info(settings, description.max_sequence_length),
        Refusals(config, way, settings.limits(counts_prompt=not translator.leaves_prompt_out)),
        guides,
    )


def serve_as_rank(path: Path, config: EngineConfig) -> None:
    """Compute this rank's part of an engine until the leader shuts down. Raises TensorRTLLMError."""
    executor = _construct(_settings(path, config), import_tensorrt_llm())
    executor.shutdown()  # which waits for the leader


def _settings(path: Path, config: EngineConfig) -> EngineSettings:
    return EngineSettings(PrebuiltEngine.read(path), config, Launch.of(os.environ))


def _info(settings: EngineSettings, described_length: int) -> ExecutorInfo:
    engine = settings.engine
    return ExecutorInfo(
        engine="trtllm",
        precision=engine.quantisation or engine.dtype,
        vocab_size=engine.vocab_size,
        max_sequence_length=min(described_length, settings.max_sequence_length),
        max_batch_size=settings.max_batch_size,
        max_waiting=settings.config.waiting_limit,
        block_size=engine.tokens_per_block,
        num_blocks=0,
        hidden_size=engine.hidden_size,
    )


def _construct(settings: EngineSettings, top: ModuleType) -> Any:
    engine = settings.engine
    if engine.version != top.__version__:
        raise TensorRTLLMError(
            f"{engine.path.name} was built with TensorRT-LLM {engine.version}, and {top.__version__} is installed: "
            "build it anew, or install the other"
        )
    _refuse_few_gpus(engine)
    api = import_part(BINDINGS)
    log.info("TensorRT-LLM %s starts the engine %s", top.__version__, engine.path)
    try:
        config = settings.executor_config(api, _package(top))
        return api.Executor(str(engine.path), api.ModelType.DECODER_ONLY, config)
    except (RuntimeError, TypeError, ValueError) as exc:
        raise TensorRTLLMError(f"TensorRT-LLM cannot run the engine {engine.path}: {exc}") from exc


def _refuse_few_gpus(engine: PrebuiltEngine) -> None:
    needed, visible = min(engine.world_size, engine.gpus_per_node), import_part("torch").cuda.device_count()
    if visible < needed:
        raise TensorRTLLMError(f"{engine.path.name} was built for {needed} GPUs per node, but {visible} can be seen")


def _package(top: ModuleType) -> Path:
    return Path(str(top.__file__)).parent
