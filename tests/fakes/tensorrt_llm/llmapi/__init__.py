"""The LLM API's public names."""

from ..result import CompletionOutput, RequestOutput
from ..sampling_params import GuidedDecodingParams, SamplingParams
from .llm import LLM
from .llm_args import (
    CudaGraphConfig,
    DraftTargetDecodingConfig,
    EagleDecodingConfig,
    KvCacheConfig,
    LookaheadDecodingConfig,
    MTPDecodingConfig,
    NGramDecodingConfig,
    SchedulerConfig,
)

__all__ = [
    "LLM",
    "CompletionOutput",
    "CudaGraphConfig",
    "DraftTargetDecodingConfig",
    "EagleDecodingConfig",
    "GuidedDecodingParams",
    "KvCacheConfig",
    "LookaheadDecodingConfig",
    "MTPDecodingConfig",
    "NGramDecodingConfig",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
]
