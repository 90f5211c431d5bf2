"""The fields that say how tokens are drawn, shared by every route that generates text."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from engines.contract import SamplingParams

MAX_CHOICES = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_BAD_WORDS = 256
MAX_BAD_WORD_CHARS = 256
MAX_STOP_TOKEN_IDS = 256
MAX_ALTERNATIVES = 20
MAX_BIASES = 4096
MAX_TOKEN_ID_DIGITS = 10

SEED_MIN, SEED_MAX = -(2**63), 2**64 - 1  # signed and unsigned 64-bit seeds are both in use

Defaults: TypeAlias = Mapping[str, float | int]


def _as_list(value: object) -> object:
    """A single stop string stands for a list of one; blank ones, which frameworks send by habit, for nothing."""
    values = [value] if isinstance(value, str) else value
    return [item for item in values if item != ""] if isinstance(values, list) else values


StopString: TypeAlias = Annotated[str, Field(max_length=MAX_STOP_CHARS)]
BadWord: TypeAlias = Annotated[str, Field(max_length=MAX_BAD_WORD_CHARS)]
StopList: TypeAlias = Annotated[list[StopString], BeforeValidator(_as_list), Field(max_length=MAX_STOPS)]


class RequestBody(BaseModel):
    """Base of all request bodies: exact types, finite numbers, unknown fields ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True, extra="ignore")


class SamplingFields(RequestBody):
    """Source: OpenAI API reference; top_k to cache_salt are the extensions that open servers share."""

    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, ge=0.0, le=1.0)
    presence_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    frequency_penalty: float | None = Field(default=None, ge=-2.0, le=2.0)
    logit_bias: dict[str, float] | None = Field(default=None, max_length=MAX_BIASES)
    seed: int | None = Field(default=None, ge=SEED_MIN, le=SEED_MAX)
    stop: StopList | None = None
    top_k: int | None = Field(default=None, ge=-1, description="-1 and 0 keep all tokens.")
    min_p: float | None = Field(default=None, ge=0.0, le=1.0)
    repetition_penalty: float | None = Field(default=None, gt=0.0)
    min_tokens: int | None = Field(default=None, ge=0)
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = Field(default=None, max_length=MAX_STOP_TOKEN_IDS)
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    bad_words: list[BadWord] | None = Field(default=None, max_length=MAX_BAD_WORDS)
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)
    priority: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)
    timeout_s: float | None = Field(default=None, gt=0.0, description="Longer answers fail with 504.")

    @field_validator("logit_bias")
    @classmethod
    def _check_logit_bias(cls, biases: dict[str, float] | None) -> dict[str, float] | None:
        for token_id, bias in (biases or {}).items():
            if not token_id.isdecimal() or len(token_id) > MAX_TOKEN_ID_DIGITS:
                raise ValueError(f"{token_id!r} is not a token id")
            if not -100.0 <= bias <= 100.0:
                raise ValueError("biases must be between -100 and 100")
        return biases

    def sampling_params(
        self, defaults: Defaults, *, logprobs: int | None, bad_token_sequences: Sequence[tuple[int, ...]] = ()
    ) -> SamplingParams:
        """Return what the executor gets: the request's own values, then the model's defaults, then "off"."""
        top_p = self._or_default("top_p", defaults, 1.0)
        temperature = self._or_default("temperature", defaults, 1.0)
        return SamplingParams(
            temperature=temperature if top_p > 0.0 else 0.0,  # no mass but the most likely token's: greedy
            top_p=top_p if top_p > 0.0 else 1.0,
            top_k=max(0, int(self._or_default("top_k", defaults, 0))),
            min_p=self._or_default("min_p", defaults, 0.0),
            seed=None if self.seed is None else self.seed % 2**64,
            repetition_penalty=self._or_default("repetition_penalty", defaults, 1.0),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias={int(token_id): bias for token_id, bias in (self.logit_bias or {}).items() if bias},
            bad_token_sequences=tuple(bad_token_sequences),
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs,
            min_tokens=self.min_tokens or 0,
        )

    def _or_default(self, name: str, defaults: Defaults, off: float) -> float:
        value: float | None = getattr(self, name)
        return defaults.get(name, off) if value is None else value
