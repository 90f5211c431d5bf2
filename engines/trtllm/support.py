"""Which field of a request each way of sampling in TensorRT-LLM 1.2 honours; the rest is refused by name.

TorchSampler reads temperature, top_k and top_p of a request and nothing else: it takes penalties, min_p, seeds and bad
words, and ignores them. TRTLLMSampler, the sampler of the C++ runtime, honours them all, but reports one logprob
only; logprobs are therefore computed from the logits here, whatever the sampler. With MTP and EAGLE-3 the target
model samples greedily. Prebuilt engines have the C++ sampler; with lookahead they sample greedily.
Source: tensorrt_llm/_torch/pyexecutor/sampler.py and speculative/; cpp/tensorrt_llm/layers/, release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engines.config import EngineConfig
from engines.contract import GenerationRequest, SamplingParams
from engines.errors import ContextLengthError, UnsupportedFeatureError

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy."""


class Sampling(StrEnum):
    """A way of sampling, by what decides about it."""

    TRTLLM = 'sampler "trtllm"'
    TORCH = 'sampler "torch"'
    DRAFTS = "ngram or draft_target"
    GREEDY_DRAFTS = "eagle3 or mtp"
    ENGINE = "engine"
    LOOKAHEAD = "engine, lookahead"


class Support(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    EMULATED = "emulated"
    REFUSED = "refused"


_H, _E, _R = Support.HONOURED, Support.EMULATED, Support.REFUSED
WAYS = tuple(Sampling)
ENGINE_WAYS = (Sampling.ENGINE, Sampling.LOOKAHEAD)
SUPPORT: Mapping[str, Mapping[Sampling, Support]] = {
    name: dict(zip(WAYS, row, strict=True))
    for name, row in {
        "temperature": (_H, _H, _H, _R, _H, _R),
        "top_k": (_H, _H, _H, _R, _H, _R),
        "top_p": (_H, _H, _H, _R, _H, _R),
        "min_p": (_H, _R, _R, _R, _H, _R),
        "seed": (_H, _R, _R, _R, _H, _R),
        "repetition_penalty": (_H, _R, _R, _R, _H, _R),
        "presence_penalty": (_H, _R, _R, _R, _H, _R),
        "frequency_penalty": (_H, _R, _R, _R, _H, _R),
        "logit_bias": (_H, _H, _R, _R, _H, _R),
        "bad_token_sequences": (_H, _E, _R, _R, _H, _R),
        "logprobs": (_E, _E, _R, _R, _E, _R),
        "prompt_logprobs": (_E, _E, _R, _R, _E, _R),
        "min_tokens": (_E, _E, _R, _R, _E, _R),
        "stop_token_ids": (_H, _H, _H, _H, _H, _H),
        "guide": (_H, _H, _R, _R, _E, _R),
        "priority": (_E, _E, _E, _E, _E, _E),
        "cache_salt": (_H, _H, _H, _H, _H, _H),
        "timeout_s": (_E, _E, _E, _E, _E, _E),
        "prompt_embeddings": (_R, _R, _R, _R, _H, _R),
        "mrope": (_R, _R, _R, _R, _H, _R),
        "adapter": (_H, _H, _R, _R, _R, _R),
    }.items()
}
EMULATED_BAD_LENGTH: Mapping[Sampling, int] = {Sampling.TRTLLM: 2, Sampling.TORCH: 1}
"""From which length on TensorRT-LLM does not know bad words itself."""
_DEFAULTS = SamplingParams()
_SHAPE_OF_THE_DRAW = ("temperature", "top_k", "top_p")
_IMAGES = "prompt_embeddings"
_WITH_A_CHECKPOINT = dict.fromkeys(
    (_IMAGES, "mrope"), ", whose PyTorch backend takes embeddings of a few models only: serve an engine"
)


def way_of(config: EngineConfig) -> Sampling:
    """Tell how an executor of this configuration samples from a checkpoint."""
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What decides about single requests beside the way of sampling. Each text is the reason, and the fix."""

    counts_prompt: bool = False
    """Penalties cannot leave the prompt out."""
    max_prompt_tokens: int | None = None
    """Where prompts are not computed in chunks."""
    no_prompt_logits: str | None = None
    """Why there are no logits of the prompt."""
    no_edits: str | None = None
    """Why the logits cannot be edited by this process."""
    late_edits: bool = False
    """The logits are edited without knowledge of the newest token."""
    no_images: str | None = None
    """Why there is no room for images."""
    max_image_tokens: int = 0
    """Rows that all images of a request may have."""
    no_mrope: str | None = None
    """Why positions are plain."""


class Refusals:
    """Refuses what an executor cannot honour."""

    def __init__(self, config: EngineConfig, way: Sampling, limits: Limits) -> None:
        self._config = config
        self._way = way
        self._limits = limits

    def check(self, request: GenerationRequest) -> None:
        """Raise UnsupportedFeatureError or ContextLengthError, naming the first field that cannot be honoured."""
        for name, ways in SUPPORT.items():
            if ways[self._way] is Support.REFUSED and _asks_for(request, name):
                why = _WITH_A_CHECKPOINT.get(name, "") if self._way not in ENGINE_WAYS else ""
                raise UnsupportedFeatureError(
                    f"{name} is not supported with {self._way} of TensorRT-LLM 1.2{why}", name
                )
        self._check_prompt(request)
        self._check_images(request)
        self._check_edits(request)
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
        if self._config.scheduler_policy == "max_utilization" and self._way not in ENGINE_WAYS:
            # a preempted request would start its grammar anew (NVIDIA/TensorRT-LLM issue 18891)
            raise UnsupportedFeatureError("a guide is not supported with scheduler_policy max_utilization", "guide")

    def _check_prompt(self, request: GenerationRequest) -> None:
        limit, num = self._limits.max_prompt_tokens, len(request.prompt_token_ids)
        if limit is not None and num > limit:
            raise ContextLengthError(
                f"a prompt may have {limit} tokens while enable_chunked_prefill is off, but has {num}", "messages"
            )

    def _check_images(self, request: GenerationRequest) -> None:
        limits, num = self._limits, sum(len(image.rows) for image in request.prompt_embeddings)
        if num and limits.no_images is not None:
            raise UnsupportedFeatureError(f"prompt_embeddings are not supported: {limits.no_images}", _IMAGES)
        if num > limits.max_image_tokens:
            raise ContextLengthError(
                f"the images of a request may have {limits.max_image_tokens} tokens, but have {num}", _IMAGES
            )
        if request.mrope is not None and limits.no_mrope is not None:
            raise UnsupportedFeatureError(f"mrope is not supported: {limits.no_mrope}", "mrope")

    def _check_edits(self, request: GenerationRequest) -> None:
        for name, is_asked in (
            ("min_tokens", request.sampling.min_tokens and request.stop_token_ids),
            ("guide", request.guide is not None),
        ):
            if is_asked and self._limits.no_edits is not None:
                raise UnsupportedFeatureError(f"{name} is not supported: {self._limits.no_edits}", name)
        if self._limits.late_edits:
            self._check_late_edits(request)

    def _check_late_edits(self, request: GenerationRequest) -> None:
        sampling, fix = request.sampling, "set disable_overlap_scheduler = true"
        if sampling.min_tokens == 1 and request.stop_token_ids:
            raise UnsupportedFeatureError(
                f"min_tokens of 1 is not supported with the overlap scheduler: ask for 0 or 2, or {fix}", "min_tokens"
            )
        if any(len(sequence) > 1 for sequence in sampling.bad_token_sequences):
            name = "bad_token_sequences"
            raise UnsupportedFeatureError(f"{name} of several tokens need another scheduler: {fix}", name)

    def _check_penalties(self, sampling: SamplingParams) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            if self._limits.counts_prompt and getattr(sampling, name):
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
            if name == "prompt_logprobs" and self._limits.no_prompt_logits is not None:
                raise UnsupportedFeatureError(f"{name} are not supported: {self._limits.no_prompt_logits}", name)
            if request.guide is not None or _edits_logits(request, self._way):
                raise UnsupportedFeatureError(
                    f"{name} are not supported beside a guide, min_tokens or bad words: "
                    "TensorRT-LLM masks the logits that they would be taken from",
                    name,
                )


def _edits_logits(request: GenerationRequest, way: Sampling) -> bool:
    sampling = request.sampling
    shortest = EMULATED_BAD_LENGTH.get(way)
    bad = shortest is not None and any(len(sequence) >= shortest for sequence in sampling.bad_token_sequences)
    return bad or bool(sampling.min_tokens and request.stop_token_ids)


def _asks_for(request: GenerationRequest, name: str) -> bool:
    if name in _SHAPE_OF_THE_DRAW:
        return not is_greedy(request.sampling)
    if hasattr(_DEFAULTS, name):
        return bool(getattr(request.sampling, name) != getattr(_DEFAULTS, name))
    return bool(getattr(request, name))
