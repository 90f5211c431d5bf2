"""What an executor is made of, whichever driver it is over."""

from dataclasses import dataclass

from engines.contract import ExecutorInfo
from engines.guides import GuideCompiler
from engines.trtllm.driver import Driver
from engines.trtllm.support import Refusals


@dataclass(frozen=True, slots=True)
class Parts:
    """A running TensorRT-LLM, and what is known of it."""

    driver: Driver
    info: ExecutorInfo
    """Without num_blocks, which the engine tells only once it has worked."""
    refusals: Refusals
    guides: GuideCompiler
