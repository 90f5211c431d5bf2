"""The one contract that every executor fulfils: plain data types and a Protocol.

Token ids go in, token ids come out. Text, chat templates, stop strings and `n` live above; tensors live below.
`engines/README.md` puts each field and method beside the TensorRT-LLM call that serves it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MIN_LOGPROB = -9999.0
"""Stands for minus infinity in every log-probability, which JSON cannot carry."""


class FinishReason(StrEnum):
    """Why a sequence ended. Errors are exceptions, never a finish reason."""

    STOP = "stop"
    LENGTH = "length"


class GuideKind(StrEnum):
    """What the source text of a `Guide` is written in."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    CALL_FORMAT = "call_format"


@dataclass(frozen=True, slots=True)
class Guide:
    """A constraint on the output as source text, never a compiled object; each executor compiles it for its backend."""

    kind: GuideKind
    source: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one token is drawn from a row of logits [vocab_size]. Every default means "off".

    Order: penalties, logit_bias, bad token sequences, min_tokens and guide on the logits; then temperature, top_k,
    top_p, min_p; then one uniform number, a pure function of (seed, position), through the inverse CDF in order of
    token ids. So neither the batch, nor preemption, nor a cancelled neighbour changes a seeded answer.
    """

    temperature: float = 1.0
    """0 is greedy: the first largest logit."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose mass reaches top_p (Holtzman et al. 2020), in (0, 1]."""
    min_p: float = 0.0
    """Keep tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024), in [0, 1]."""
    seed: int | None = None
    """64-bit seed; None lets the executor draw one."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of seen tokens, prompt included (Keskar et al. 2019).

    In [0.001, 1000]: beyond, logits would leave the range of float32.
    """
    presence_penalty: float = 0.0
    """Subtracted once from the logits of generated tokens, in [-2, 2]."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence from the logits of generated tokens, in [-2, 2]."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids, each in [-100, 100]."""
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    """The last token of each is never sampled after the ones before it."""
    logprobs: int | None = None
    """How many alternatives to report beside the sampled token; None reports nothing, 0 the sampled token only."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens."""
    min_tokens: int = 0
    """Stop token ids are masked until so many tokens are generated, or a guide allows nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptEmbeddings:
    """Rows that take the place of prompt tokens, such as a vision encoder makes of an image."""

    start: int
    """Index of the first prompt token whose embedding a row takes the place of; the others follow it."""
    rows: NDArray[np.float32]
    """[num_rows, hidden_size], one row per token."""
    content_hash: bytes
    """Hash of all that the rows were made of: prefix blocks are shared between equal hashes only."""


@dataclass(frozen=True, slots=True, eq=False)
class Mrope:
    """Rotary positions of the tokens of a prompt with images, for models whose positions have several axes."""

    rotary_cos_sin: NDArray[np.float32]
    """[max_position_embeddings * rotary_dim], flat."""
    position_delta: int
    """What the position of a generated token differs by from its index."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt, one sequence. `n` and lists of prompts are fanned out above the contract."""

    seq_id: str
    """Unique among the live sequences of an executor."""
    prompt_token_ids: tuple[int, ...]
    """At least one id, each in [0, vocab_size); special tokens such as BOS are already in it."""
    sampling: SamplingParams
    max_tokens: int
    """Upper bound of generated tokens, end token included; prompt + max_tokens must fit the context."""
    stop_token_ids: frozenset[int] = frozenset()
    """Sampling one of these ends the sequence; the id is the last one of its outputs."""
    guide: Guide | None = None
    priority: int = 0
    """Lower is served first; equal priorities in order of arrival."""
    cache_salt: str | None = None
    """Sequences reuse each other's prefix blocks only if their salts are equal."""
    timeout_s: float | None = None
    """Seconds from submit to the last token, waiting included; after them the iterator raises TimedOutError."""
    prompt_embeddings: tuple[PromptEmbeddings, ...] = ()
    """Images; the tokens whose places they take are what a prompt logprob is of, and count for no penalty."""
    mrope: Mrope | None = None
    adapter: str | None = None
    """Name of the LoRA adapter that is applied, one of `ExecutorInfo.adapters`; None is the plain model.

    Sequences of different adapters never reuse each other's prefix blocks.
    """


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of one token in the raw distribution, before temperature, penalties and masks."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most likely (token id, log-probability) pairs, best first."""


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What one step gave one sequence."""

    token_ids: tuple[int, ...]
    """New tokens in order; several when drafts were accepted."""
    finish_reason: FinishReason | None = None
    """Set in the last output of a sequence."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One per new token, if asked for."""
    num_cached_tokens: int | None = None
    """In the first output: how many prompt tokens came out of the prefix cache."""
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    """In the first output, if asked for: one per prompt token after the first."""


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What services need to know of a loaded model, fixed for the executor's life."""

    engine: str
    """Name of the backend, such as "openvino"."""
    precision: str
    """Arithmetic of the forward pass, such as "bf16"."""
    vocab_size: int
    max_sequence_length: int
    """Prompt + generated tokens of one sequence."""
    max_batch_size: int
    max_waiting: int
    block_size: int
    """Tokens per KV block."""
    num_blocks: int
    hidden_size: int = 0
    """Width of a row of prompt embeddings; 0 where none are taken."""
    adapters: tuple[str, ...] = ()
    """Names of the LoRA adapters that requests can ask for."""


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """A snapshot, at most one step old. Counters grow for ever; rates cover the last few seconds."""

    num_running: int = 0
    num_waiting: int = 0
    num_blocks_used: int = 0
    num_blocks_free: int = 0
    num_blocks_cached: int = 0
    """Blocks nobody uses whose content can still be hit. used + free + cached = total."""
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens that came out of the prefix cache; over num_prompt_tokens this is the hit rate."""
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    """How often a running sequence had to give its blocks back and wait."""
    tokens_per_s: float = 0.0
    """Generated tokens per second."""
    step_time_s: float = 0.0
    """Mean duration of a step."""

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came out of the prefix cache, in [0, 1]."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0


class Executor(Protocol):
    """In-flight batching over a paged KV cache. All methods are called on one event loop, from its thread."""

    @property
    def info(self) -> ExecutorInfo:
        """What is fixed for the executor's life."""
        ...

    @property
    def is_alive(self) -> bool:
        """False before `start`, after `shutdown`, and once the engine has died."""
        ...

    async def start(self) -> None:
        """Bind to the running event loop and begin to serve."""
        ...

    def submit(self, request: GenerationRequest) -> AsyncIterator[TokenOutput]:
        """Check and queue a request; iterate over its outputs until one has a finish reason.

        Raises at once, with nothing queued: InvalidRequestError, ContextLengthError, UnsupportedFeatureError,
        OverloadedError, EngineDeadError. The iterator raises StepFailedError, TimedOutError, GuideError (a guide that
        cannot be followed to its end) or EngineDeadError. After `cancel` it
        just ends.
        """
        ...

    def cancel(self, seq_id: str) -> None:
        """Forget a sequence within one step and free its blocks. Does nothing for one that is over or unknown."""
        ...

    async def compile(self, guide: Guide) -> None:
        """Check that the guide compiles and keep the result. Raises GuideError or UnsupportedFeatureError."""
        ...

    def stats(self) -> ExecutorStats:
        """Return the newest snapshot."""
        ...

    async def shutdown(self) -> None:
        """Stop serving: live iterators raise EngineDeadError, memory is given back. Idempotent."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors, batched. All methods are called on one event loop, from its thread."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_sequence_length(self) -> int:
        """Tokens that one text may have."""
        ...

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of the texts, [num_texts, dimensions], each of length 1 and in the order of the texts.

        Raises ContextLengthError for a text of too many tokens, OverloadedError and EngineDeadError.
        """
        ...
