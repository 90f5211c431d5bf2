"""Requests and responses, checked as strictly as the bindings do it: when they are made, and at every assignment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from torch import Tensor

INT32, UINT64 = 2**31, 2**64
UNREADABLE = ("priority", "num_return_sequences", "encoder_output_length", "language_adapter_uid")
READ_ONLY = ("input_token_ids", "max_tokens")


class ModelType(Enum):
    DECODER_ONLY = 0
    ENCODER_ONLY = 1
    ENCODER_DECODER = 2


class RequestType(Enum):
    REQUEST_TYPE_CONTEXT_AND_GENERATION = 0
    REQUEST_TYPE_CONTEXT_ONLY = 1
    REQUEST_TYPE_GENERATION_ONLY = 2


class FinishReason(Enum):
    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


def integer(value: Any, bound: int = INT32, lowest: int | None = None) -> int:
    """Take what fits a C++ integer. Raises TypeError."""
    low = -bound if lowest is None else lowest
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < bound:
        raise TypeError(f"incompatible function arguments: {value!r}")
    return value


def integers(value: Any) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"incompatible function arguments: {value!r}")
    return [integer(item) for item in value]


Rule = tuple[Callable[[Any], bool], str]
_RULES: dict[str, Rule] = {
    "beam_width": (lambda v: v > 0, "beamWidth must be above 0"),
    "top_k": (lambda v: v >= 0, "topK must be at least 0"),
    "top_p": (lambda v: 0 < v <= 1, "topP must be in (0, 1]"),
    "temperature": (lambda v: v >= 0, "temperature must be at least 0"),
    "min_tokens": (lambda v: v >= 0, "minTokens must be at least 0"),
    "repetition_penalty": (lambda v: v > 0, "repetitionPenalty must be above 0"),
    "min_p": (lambda v: 0 <= v <= 1, "minP must be in [0, 1]"),
    "top_p_min": (lambda v: 0 <= v <= 1, "topPMin must be in [0, 1]"),
    "top_p_decay": (lambda v: 0 < v <= 1, "topPDecay must be in (0, 1]"),
    "top_p_reset_ids": (lambda v: v >= 0, "topPResetIds must be at least 0"),
    "no_repeat_ngram_size": (lambda v: v >= 0, "noRepeatNgramSize must be at least 0"),
    "num_return_sequences": (lambda v: v > 0, "numReturnSequences must be above 0"),
    "prompt_ignore_length": (lambda v: v >= 0, "promptIgnoreLength must be at least 0"),
}
_INTEGERS = ("beam_width", "top_k", "min_tokens", "top_p_reset_ids", "no_repeat_ngram_size", "num_return_sequences")
_SAMPLING = (
    "top_k",
    "top_p",
    "top_p_min",
    "top_p_reset_ids",
    "top_p_decay",
    "seed",
    "temperature",
    "min_tokens",
    "beam_search_diversity_rate",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "prompt_ignore_length",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "num_return_sequences",
    "min_p",
    "beam_width_array",
)


class SamplingConfig:
    """How tokens are drawn; all but the beam width is by keyword."""

    prompt_ignore_length: int | None = None  # as attributes of the class tell which a build has

    def __init__(self, beam_width: int = 1, **options: Any) -> None:
        for name in options:
            if name not in _SAMPLING:
                raise TypeError(f"incompatible constructor arguments: {name}")
        self.beam_width = beam_width
        for name in _SAMPLING:
            setattr(self, name, options.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if value is not None:
            if name in _INTEGERS or name == "prompt_ignore_length":
                integer(value)
            if name == "seed":
                integer(value, UINT64, lowest=0)
            if name in _RULES and not _RULES[name][0](value):
                raise RuntimeError(_RULES[name][1])
        object.__setattr__(self, name, value)


@dataclass
class OutputConfig:
    return_log_probs: bool = False
    return_context_logits: bool = False
    return_generation_logits: bool = False
    exclude_input_from_output: bool = False
    return_encoder_output: bool = False
    return_perf_metrics: bool = False
    additional_model_outputs: Any = None


class PromptTuningConfig:
    def __init__(self, embedding_table: Tensor, input_token_extra_ids: Sequence[int] | None = None) -> None:
        if not isinstance(embedding_table, Tensor):
            raise TypeError("embedding_table must be a tensor")
        if len(embedding_table.shape) != 2:
            raise RuntimeError("expected prompt embedding table of shape [rows, hidden_size]")
        self.embedding_table = embedding_table
        extra_ids = input_token_extra_ids
        self.input_token_extra_ids = extra_ids and [integer(extra_id, UINT64, lowest=0) for extra_id in extra_ids]


class MropeConfig:
    def __init__(self, mrope_rotary_cos_sin: Tensor, mrope_position_deltas: int) -> None:
        if not isinstance(mrope_rotary_cos_sin, Tensor):
            raise TypeError("mrope_rotary_cos_sin must be a tensor")
        self.mrope_rotary_cos_sin = mrope_rotary_cos_sin
        self.mrope_position_deltas = integer(mrope_position_deltas)


_OPTIONS: dict[str, Any] = {
    "streaming": False,
    "sampling_config": None,
    "output_config": None,
    "end_id": None,
    "pad_id": None,
    "position_ids": None,
    "bad_words": None,
    "stop_words": None,
    "embedding_bias": None,
    "external_draft_tokens_config": None,
    "prompt_tuning_config": None,
    "multimodal_input": None,
    "multimodal_embedding": None,
    "mrope_config": None,
    "lora_config": None,
    "lookahead_config": None,
    "kv_cache_retention_config": None,
    "logits_post_processor_name": None,
    "logits_post_processor": None,
    "encoder_input_token_ids": None,
    "client_id": None,
    "return_all_generated_tokens": False,
    "priority": 0.5,
    "type": RequestType.REQUEST_TYPE_CONTEXT_AND_GENERATION,
    "context_phase_params": None,
    "encoder_input_features": None,
    "encoder_output_length": None,
    "cross_attention_mask": None,
    "num_return_sequences": 1,
    "eagle_config": None,
    "skip_cross_attn_blocks": None,
    "guided_decoding_params": None,
    "language_adapter_uid": None,
    "allotted_time_ms": None,
    "cache_salt_id": None,
}


class Request:
    """One prompt. Only the token ids and max_tokens may be positional; `type` is read back as `request_type`."""

    input_token_ids: list[int]
    max_tokens: int
    sampling_config: SamplingConfig
    output_config: OutputConfig
    request_type: RequestType
    streaming: bool
    end_id: int | None
    bad_words: list[list[int]] | None
    stop_words: list[list[int]] | None
    embedding_bias: Tensor | None
    prompt_tuning_config: PromptTuningConfig | None
    mrope_config: MropeConfig | None
    logits_post_processor: Callable[..., None] | None
    guided_decoding_params: Any
    client_id: int | None
    cache_salt_id: int | None

    def __init__(self, input_token_ids: Any, max_tokens: Any, **options: Any) -> None:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise TypeError(f"incompatible constructor arguments: {sorted(unknown)}")
        token_ids, num = integers(input_token_ids), integer(max_tokens)
        if not token_ids:
            raise RuntimeError("inputTokenIds must not be empty")
        if num <= 0:
            raise RuntimeError("maxNewTokens must be above 0")
        object.__setattr__(self, "input_token_ids", token_ids)
        object.__setattr__(self, "max_tokens", num)
        for name, default in _OPTIONS.items():
            setattr(self, "request_type" if name == "type" else name, options.get(name, default))
        self.sampling_config = self.sampling_config or SamplingConfig()
        self.output_config = self.output_config or OutputConfig()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in READ_ONLY:
            raise AttributeError(f"property {name!r} of 'Request' object has no setter")
        if value is not None and name in _TYPES:
            _TYPES[name](value)
        object.__setattr__(self, f"_{name}" if name in UNREADABLE else name, value)


def _instance(kind: type) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"incompatible function arguments: {value!r} is no {kind.__name__}")

    return check


def _words(value: Any) -> None:
    if not isinstance(value, list) or not all(integers(word) for word in value):
        raise TypeError(f"incompatible function arguments: {value!r}")


_TYPES: dict[str, Callable[[Any], Any]] = {
    "streaming": _instance(bool),
    "sampling_config": _instance(SamplingConfig),
    "output_config": _instance(OutputConfig),
    "end_id": integer,
    "pad_id": integer,
    "bad_words": _words,
    "stop_words": _words,
    "embedding_bias": _instance(Tensor),
    "prompt_tuning_config": _instance(PromptTuningConfig),
    "mrope_config": _instance(MropeConfig),
    "client_id": lambda value: integer(value, UINT64, lowest=0),
    "request_type": _instance(RequestType),
    "allotted_time_ms": _instance(timedelta),
    "cache_salt_id": lambda value: integer(value, UINT64, lowest=0),
}


@dataclass
class KvCacheMetrics:
    num_reused_blocks: int = 0


@dataclass
class RequestPerfMetrics:
    kv_cache_metrics: KvCacheMetrics = field(default_factory=KvCacheMetrics)


@dataclass(init=False)
class Result:
    is_final: bool = False
    output_token_ids: list[list[int]] = field(default_factory=list)
    cum_log_probs: Any = None
    log_probs: Any = None
    context_logits: Tensor | None = None
    generation_logits: Tensor | None = None
    finish_reasons: list[FinishReason] = field(default_factory=list)
    sequence_index: int = 0
    is_sequence_final: bool = False
    decoding_iter: int = 0
    request_perf_metrics: RequestPerfMetrics | None = None

    def __init__(self) -> None:
        self.output_token_ids, self.finish_reasons = [], []


class Response:
    """A result, or an error whose result cannot be read."""

    def __init__(self, request_id: int, outcome: Result | str, client_id: int | None = None) -> None:
        self.request_id = request_id
        self.client_id = client_id
        self._outcome = outcome

    def has_error(self) -> bool:
        return isinstance(self._outcome, str)

    @property
    def error_msg(self) -> str:
        if not isinstance(self._outcome, str):
            raise RuntimeError("the response has no error")
        return self._outcome

    @property
    def result(self) -> Result:
        if isinstance(self._outcome, str):
            raise RuntimeError("the response has an error, and no result")
        return self._outcome
