"""The executor contract and the executors behind it.

`contract` holds the plain types that travel between services and an executor, `errors` what an executor may raise.
`load_executor` finds a backend by name in a table of "module:Class" strings, so that a CPU machine never imports
tensorrt_llm and a GPU machine never imports openvino.
"""

from importlib import import_module

from engines.config import EngineConfig
from engines.contract import (
    Embedder,
    Executor,
    ExecutorInfo,
    ExecutorStats,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideKind,
    Mrope,
    PromptEmbeddings,
    SamplingParams,
    TokenLogprob,
    TokenOutput,
)
from engines.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineError,
    GuideError,
    InvalidRequestError,
    MemoryShortageError,
    OverloadedError,
    StepFailedError,
    TimedOutError,
    UnsupportedFeatureError,
)
from engines.folder import EngineFolder, EngineFolderError

EXECUTORS = {
    "openvino": "engines.openvino.executor:OpenVINOExecutor",
    "trtllm": "engines.trtllm.executor:TRTLLMExecutor",
}
"""Name of an engine, as engine.json gives it, to "module:Class"."""


def load_executor(folder: EngineFolder, config: EngineConfig) -> Executor:
    """Load the model of an engine folder into the executor that it was built for. Blocking, up to seconds.

    Raises EngineFolderError for an engine that is not known here, and the executor's own errors.
    """
    target = EXECUTORS.get(folder.description.engine)
    if target is None:
        known = ", ".join(sorted(EXECUTORS))
        raise EngineFolderError(f"{folder.path} was built for engine {folder.description.engine!r}; known: {known}")
    module, _, name = target.partition(":")
    executor: Executor = getattr(import_module(module), name).load(folder, config)
    return executor


__all__ = [
    "ContextLengthError",
    "Embedder",
    "EngineConfig",
    "EngineDeadError",
    "EngineError",
    "EngineFolder",
    "EngineFolderError",
    "Executor",
    "ExecutorInfo",
    "ExecutorStats",
    "FinishReason",
    "GenerationRequest",
    "Guide",
    "GuideError",
    "GuideKind",
    "InvalidRequestError",
    "MemoryShortageError",
    "Mrope",
    "OverloadedError",
    "PromptEmbeddings",
    "SamplingParams",
    "StepFailedError",
    "TimedOutError",
    "TokenLogprob",
    "TokenOutput",
    "UnsupportedFeatureError",
    "load_executor",
]
