"""SamplingParams and GuidedDecodingParams: names, defaults and checks of the real ones."""

from dataclasses import dataclass, field
from typing import Any

from .tensor import Tensor, tensor


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    json: Any = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def _validate(self) -> None:
        guides = (self.json, self.regex, self.grammar, self.json_object or None, self.structural_tag)
        if sum(guide is not None for guide in guides) > 1:
            raise ValueError("Only one guide can be used for a request.")


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int | None = 32
    bad: str | list[str] | None = None
    bad_token_ids: list[int] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    embedding_bias: Any = None
    logits_processor: Any = None
    apply_batched_logits_processor: bool = False
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    top_p: float | None = None
    top_p_min: float | None = None
    top_p_reset_ids: int | None = None
    top_p_decay: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    beam_search_diversity_rate: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    prompt_ignore_length: int | None = None
    length_penalty: float | None = None
    early_stopping: int | None = None
    no_repeat_ngram_size: int | None = None
    min_p: float | None = None
    beam_width_array: list[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = True
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: list[str] | None = None
    lookahead_config: Any = None
    guided_decoding: GuidedDecodingParams | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    _return_log_probs: bool = False
    _stream_interval: int | None = field(default=None, init=False, repr=False)
    _is_tokenised: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.pad_id is None:
            self.pad_id = self.end_id
        self.best_of = self.best_of or self.n
        if self.embedding_bias is not None:
            self.embedding_bias = tensor(self.embedding_bias)
        self._validate()

    def _validate(self) -> None:
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")
        if self.temperature is not None and self.temperature < 0:
            raise ValueError(f"require temperature >= 0, got temperature={self.temperature}")
        assert self.best_of is not None
        if self.best_of < self.n:
            raise ValueError(f"best_of ({self.best_of}) cannot be less than n ({self.n})")
        if self.best_of > 1 and self.is_greedy:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns.")
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens < 1:
            raise ValueError(f"truncate_prompt_tokens must be >= 1, got {self.truncate_prompt_tokens}")
        if self.guided_decoding is not None:
            self.guided_decoding._validate()
        self.logprobs = self.logprobs and int(self.logprobs)
        self.prompt_logprobs = self.prompt_logprobs and int(self.prompt_logprobs)

    @property
    def is_greedy(self) -> bool:
        draws = (self.temperature, self.top_p, self.top_k)
        return not self.use_beam_search and (
            all(value is None for value in draws) or self.top_k == 1 or self.top_p == 0 or self.temperature == 0
        )

    def setup(self, end_token_id: int) -> None:
        """What submitting changes in the caller's object."""
        if self.end_id is None:
            self.end_id = self.pad_id = end_token_id
            self._is_tokenised = True  # with an end_id of the caller's, stop and bad stay texts

    @property
    def has_untokenised_words(self) -> bool:
        return (self.stop is not None or self.bad is not None) and not self._is_tokenised

    @property
    def bias(self) -> Tensor | None:
        return self.embedding_bias if isinstance(self.embedding_bias, Tensor) else None
