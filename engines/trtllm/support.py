"""Which field of a request each way of sampling in TensorRT-LLM 1.2 honours; the rest is refused by name.

TorchSampler reads temperature, top_k and top_p of a request and nothing else: it takes penalties, min_p, seeds and bad
words, and ignores them. TRTLLMSampler, the sampler of the C++ runtime, honours them all, but reports one logprob
only; logprobs are therefore computed from the logits here, whatever the sampler. With MTP and EAGLE-3 the target
model samples greedily.
Source: tensorrt_llm/_torch/pyexecutor/sampler.py and speculative/, release 1.2.
"""

from collections.abc import Mapping
from enum import StrEnum

from engines.config import EngineConfig
from engines.contract import GenerationRequest, SamplingParams
from engines.errors import UnsupportedFeatureError

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy."""


class Sampling(StrEnum):
    """A way of sampling, by what decides about it."""

    TRTLLM = 'sampler "trtllm"'
    TORCH = 'sampler "torch"'
    DRAFTS = "ngram or draft_target"
    GREEDY_DRAFTS = "eagle3 or mtp"


class Support(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    EMULATED = "emulated"
    REFUSED = "refused"


_H, _E, _R = Support.HONOURED, Support.EMULATED, Support.REFUSED
WAYS = (Sampling.TRTLLM, Sampling.TORCH, Sampling.DRAFTS, Sampling.GREEDY_DRAFTS)
SUPPORT: Mapping[str, Mapping[Sampling, Support]] = {
    name: dict(zip(WAYS, row, strict=True))
    for name, row in {
        "temperature": (_H, _H, _H, _R),
        "top_k": (_H, _H, _H, _R),
        "top_p": (_H, _H, _H, _R),
        "min_p": (_H, _R, _R, _R),
        "seed": (_H, _R, _R, _R),
        "repetition_penalty": (_H, _R, _R, _R),
        "presence_penalty": (_H, _R, _R, _R),
        "frequency_penalty": (_H, _R, _R, _R),
        "logit_bias": (_H, _H, _R, _R),
        "bad_token_sequences": (_H, _E, _R, _R),
        "logprobs": (_E, _E, _R, _R),
        "prompt_logprobs": (_E, _E, _R, _R),
        "min_tokens": (_E, _E, _R, _R),
        "stop_token_ids": (_H, _H, _H, _H),
        "guide": (_H, _H, _R, _R),
        "priority": (_E, _E, _E, _E),
        "cache_salt": (_H, _H, _H, _H),
        "timeout_s": (_E, _E, _E, _E),
        "prompt_embeddings": (_R, _R, _R, _R),
        "mrope": (_R, _R, _R, _R),
    }.items()
}
_DEFAULTS = SamplingParams()
_SHAPE_OF_THE_DRAW = ("temperature", "top_k", "top_p")


def way_of(config: EngineConfig) -> Sampling:
    """Tell how an executor of this configuration samples."""
    if config.trtllm.speculation in ("ngram", "draft_target"):
        return Sampling.DRAFTS
    if config.trtllm.speculation in ("eagle3", "mtp"):
        return Sampling.GREEDY_DRAFTS
    return Sampling.TRTLLM if config.trtllm.sampler == "trtllm" else Sampling.TORCH


def is_greedy(sampling: SamplingParams) -> bool:
    """Whether the most likely token is taken each time."""
    return sampling.temperature < GREEDY_BELOW or sampling.top_k == 1


def support_table() -> str:
    """Write SUPPORT as a table in Markdown, for people."""
    lines = ["| field | " + " | ".join(WAYS) + " |", "| --- |" + " --- |" * len(WAYS)]
    lines += [f"| `{name}` | " + " | ".join(ways[way] for way in WAYS) + " |" for name, ways in SUPPORT.items()]
    return "\n".join(lines)


class Refusals:
    """Refuses what an executor cannot honour. `counts_prompt` says that penalties cannot leave the prompt out."""

    def __init__(self, config: EngineConfig, *, counts_prompt: bool) -> None:
        self._config = config
        self._way = way_of(config)
        self._counts_prompt = counts_prompt

    def check(self, request: GenerationRequest) -> None:
        """Raise UnsupportedFeatureError naming the first field that cannot be honoured."""
        for name, ways in SUPPORT.items():
            if ways[self._way] is Support.REFUSED and _asks_for(request, name):
                raise UnsupportedFeatureError(f"{name} is not supported with {self._way} of TensorRT-LLM 1.2", name)
        self._check_penalties(request.sampling)
        self._check_logprobs(request)
        self._check_guide(request)

    def _check_guide(self, request: GenerationRequest) -> None:
        if request.guide is None:
            return
        for name, is_asked in (
            ("min_tokens", request.sampling.min_tokens and request.stop_token_ids),
            ("bad_token_sequences", request.sampling.bad_token_sequences),
        ):
            if is_asked:  # where the guide allows nothing but a masked token, no token would be left
                raise UnsupportedFeatureError(f"{name} is not supported beside a guide", name)
        if self._config.scheduler_policy == "max_utilization":
            # a preempted request would start its grammar anew (NVIDIA/TensorRT-LLM issue 18891)
            raise UnsupportedFeatureError("a guide is not supported with scheduler_policy max_utilization", "guide")

    def _check_penalties(self, sampling: SamplingParams) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            if self._counts_prompt and getattr(sampling, name):
                raise UnsupportedFeatureError(
                    f"{name} is not supported: this build of TensorRT-LLM would count the prompt's tokens too", name
                )

    def _check_logprobs(self, request: GenerationRequest) -> None:
        sampling = request.sampling
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(sampling, name) is None:
                continue
            if not self._config.trtllm.gather_generation_logits:
                raise UnsupportedFeatureError(f"{name} need gather_generation_logits = true in the settings", name)
            if request.guide is not None or _edits_logits(request, self._way):
                raise UnsupportedFeatureError(
                    f"{name} are not supported beside a guide, min_tokens or bad words: "
                    "TensorRT-LLM masks the logits that they would be taken from",
                    name,
                )


def _edits_logits(request: GenerationRequest, way: Sampling) -> bool:
    sampling = request.sampling
    edited = way is not Sampling.TRTLLM
    return any(edited or len(sequence) > 1 for sequence in sampling.bad_token_sequences) or bool(
        sampling.min_tokens and request.stop_token_ids
    )


def _asks_for(request: GenerationRequest, name: str) -> bool:
    if name in _SHAPE_OF_THE_DRAW:
        return not is_greedy(request.sampling)
    if hasattr(_DEFAULTS, name):
        return bool(getattr(request.sampling, name) != getattr(_DEFAULTS, name))
    return bool(getattr(request, name))
