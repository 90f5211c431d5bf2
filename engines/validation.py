"""What every executor checks of a request before anything is queued."""

import math
from collections.abc import Callable

import numpy as np

from engines.contract import ExecutorInfo, GenerationRequest, PromptEmbeddings, SamplingParams
from engines.errors import ContextLengthError, InvalidRequestError, UnsupportedFeatureError

MAX_LOGPROBS = 20

Check = tuple[str, Callable[[SamplingParams], bool], str]

SAMPLING_CHECKS: tuple[Check, ...] = (
    ("temperature", lambda p: 0.0 <= p.temperature < math.inf, "must be at least 0"),
    ("top_k", lambda p: 0 <= p.top_k < 2**31, "must be at least 0 (0 keeps all tokens) and below 2**31"),
    ("top_p", lambda p: 0.0 < p.top_p <= 1.0, "must be above 0 and at most 1"),
    ("min_p", lambda p: 0.0 <= p.min_p <= 1.0, "must be between 0 and 1"),
    ("repetition_penalty", lambda p: 1e-3 <= p.repetition_penalty <= 1e3, "must be between 0.001 and 1000"),
    ("presence_penalty", lambda p: -2.0 <= p.presence_penalty <= 2.0, "must be between -2 and 2"),
    ("frequency_penalty", lambda p: -2.0 <= p.frequency_penalty <= 2.0, "must be between -2 and 2"),
    ("logit_bias", lambda p: all(-100.0 <= bias <= 100.0 for bias in p.logit_bias.values()), "must be in [-100, 100]"),
    ("bad_token_sequences", lambda p: all(p.bad_token_sequences), "must not have an empty sequence"),
    ("logprobs", lambda p: p.logprobs is None or 0 <= p.logprobs <= MAX_LOGPROBS, "must be between 0 and 20"),
    (
        "prompt_logprobs",
        lambda p: p.prompt_logprobs is None or 0 <= p.prompt_logprobs <= MAX_LOGPROBS,
        "must be between 0 and 20",
    ),
    ("min_tokens", lambda p: p.min_tokens >= 0, "must be at least 0"),
)


def check_request(request: GenerationRequest, info: ExecutorInfo) -> None:
    """Raise InvalidRequestError or ContextLengthError, naming the field, for a request that can never be served."""
    _check_sampling(request.sampling)
    _check_timeout(request.timeout_s)
    _check_token_ids(request, info.vocab_size)
    _check_length(request, info)
    _check_prompt_embeddings(request, info)
    _check_adapter(request.adapter, info)


def _check_sampling(sampling: SamplingParams) -> None:
    for name, is_valid, rule in SAMPLING_CHECKS:
        if not is_valid(sampling):  # NaN fails every comparison
            raise InvalidRequestError(f"{name} {rule}", name)


def _check_timeout(timeout_s: float | None) -> None:
    if timeout_s is not None and not 0.0 < timeout_s < math.inf:
        raise InvalidRequestError("timeout_s must be above 0", "timeout_s")


def _check_token_ids(request: GenerationRequest, vocab_size: int) -> None:
    prompt = request.prompt_token_ids
    if not prompt:
        raise InvalidRequestError("the prompt is empty", "prompt")
    sampling = request.sampling
    banned = [token_id for sequence in sampling.bad_token_sequences for token_id in sequence]
    for name, token_ids in (
        ("prompt", prompt),
        ("stop_token_ids", request.stop_token_ids),
        ("logit_bias", sampling.logit_bias),
        ("bad_token_sequences", banned),
    ):
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            raise InvalidRequestError(f"{name} has a token id outside the vocabulary of {vocab_size}", name)


def _check_length(request: GenerationRequest, info: ExecutorInfo) -> None:
    num_prompt, max_tokens = len(request.prompt_token_ids), request.max_tokens
    if max_tokens < 1:
        raise InvalidRequestError("max_tokens must be at least 1", "max_tokens")
    if request.sampling.min_tokens > max_tokens:
        raise InvalidRequestError(f"min_tokens must be at most max_tokens = {max_tokens}", "min_tokens")
    for limit, what in (
        (info.max_sequence_length, "this model's context is"),
        (info.num_blocks * info.block_size, "the KV cache holds"),
    ):
        if num_prompt + max_tokens > limit:
            raise ContextLengthError(
                f"{what} {limit} tokens, but {num_prompt + max_tokens} were asked for: "
                f"{num_prompt} in the prompt and {max_tokens} for the answer (max_tokens)",
                "messages" if num_prompt >= limit else "max_tokens",
            )


def _check_prompt_embeddings(request: GenerationRequest, info: ExecutorInfo) -> None:
    if not info.hidden_size and (request.prompt_embeddings or request.mrope is not None):
        raise UnsupportedFeatureError(f"the engine {info.engine} takes no images for this model", "prompt_embeddings")
    end = 0
    for image in sorted(request.prompt_embeddings, key=lambda image: image.start):
        if fault := _fault(image, info.hidden_size):
            raise InvalidRequestError(f"prompt_embeddings {fault}", "prompt_embeddings")
        if image.start < end:
            raise InvalidRequestError("prompt_embeddings overlap each other", "prompt_embeddings")
        end = image.start + len(image.rows)
    if end > len(request.prompt_token_ids):
        raise InvalidRequestError("prompt_embeddings reach beyond the prompt", "prompt_embeddings")


def _check_adapter(adapter: str | None, info: ExecutorInfo) -> None:
    if adapter is None or adapter in info.adapters:
        return
    if not info.adapters:
        raise UnsupportedFeatureError(f"the engine {info.engine} has no LoRA adapters here", "adapter")
    raise InvalidRequestError(f"there is no adapter {adapter!r}, but {', '.join(info.adapters)}", "adapter")


def _fault(image: PromptEmbeddings, hidden_size: int) -> str | None:
    rows = image.rows
    if rows.ndim != 2 or rows.shape[1] != hidden_size or not len(rows):
        return f"must be [num_rows, {hidden_size}], not {list(rows.shape)}"
    if rows.dtype != np.float32:
        return f"must be float32, not {rows.dtype}"
    if not image.content_hash:
        return "need a content_hash"
    return "must not start before the prompt" if image.start < 0 else None
