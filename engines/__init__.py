"""The executor contract and the executors behind it.

`contract` holds the plain types that travel between services and an executor, `errors` what an executor may raise.
`load_executor` finds a backend by name in a table of "module:Class" strings, so that a CPU machine never imports
tensorrt_llm and a GPU machine never imports openvino.
"""

from engines.contract import (
    Executor,
    ExecutorInfo,
    ExecutorStats,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideKind,
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
    OverloadedError,
    StepFailedError,
    UnsupportedFeatureError,
)

__all__ = [
    "ContextLengthError",
    "EngineDeadError",
    "EngineError",
    "Executor",
    "ExecutorInfo",
    "ExecutorStats",
    "FinishReason",
    "GenerationRequest",
    "Guide",
    "GuideError",
    "GuideKind",
    "InvalidRequestError",
    "OverloadedError",
    "SamplingParams",
    "StepFailedError",
    "TokenLogprob",
    "TokenOutput",
    "UnsupportedFeatureError",
]
