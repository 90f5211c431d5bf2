"""Sampling parameters in the words that both interfaces of TensorRT-LLM share.

Source: `SamplingConfig` in cpp/include/tensorrt_llm/executor/executor.h; tensorrt_llm/sampling_params.py; release 1.2.
"""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contract import GenerationRequest, SamplingParams
from engines.trtllm.support import is_greedy

ANY_SEED = 2**64


def bias_row(sampling: SamplingParams, vocab_size: int) -> NDArray[np.float32] | None:
    """Write logit_bias as a row [vocab_size], None where there is none."""
    if not sampling.logit_bias:
        return None
    bias = np.zeros(vocab_size, np.float32)
    bias[list(sampling.logit_bias)] = list(sampling.logit_bias.values())
    return bias


def seed_and_penalties(request: GenerationRequest) -> dict[str, Any]:
    """What the sampler of the C++ runtime honours beside how the token is drawn, by its names."""
    sampling = request.sampling
    # None would be 0 for every request: equal prompts would get equal answers
    seed = random.getrandbits(64) if sampling.seed is None else sampling.seed % ANY_SEED
    arguments: dict[str, Any] = {"seed": seed, "min_p": sampling.min_p}
    if sampling.repetition_penalty != 1.0:
        arguments["repetition_penalty"] = sampling.repetition_penalty
    if sampling.presence_penalty or sampling.frequency_penalty:
        arguments["presence_penalty"] = sampling.presence_penalty
        arguments["frequency_penalty"] = sampling.frequency_penalty
        arguments["prompt_ignore_length"] = len(request.prompt_token_ids)
    return arguments


def draw(sampling: SamplingParams) -> dict[str, Any]:
    """How the token is drawn, in full: what is left out is 0 in the C++ runtime, and top_p = 0 is greedy."""
    if is_greedy(sampling):
        return {"top_k": 1}
    return {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
