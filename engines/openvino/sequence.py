"""A sequence on its way through the executor, and the batch of one step."""

import math
import random
import time
from dataclasses import dataclass

from engines.contract import GenerationRequest, TokenLogprob
from engines.errors import GuideError
from engines.guides import GuideMatcher
from engines.openvino.blocks import ROOT_UID, BlockKey
from engines.openvino.logit_edits import LogitEdits

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing logits by less loses nothing but float range."""


class Sequence:
    """One request's tokens and KV blocks. Only the scheduler changes it."""

    def __init__(
        self,
        request: GenerationRequest,
        prompt_keys: list[BlockKey],
        arrival: int,
        block_size: int,
        matcher: GuideMatcher | None = None,
    ) -> None:
        self.request = request
        self.seq_id = request.seq_id
        self.sampling = request.sampling
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.prompt_keys = prompt_keys
        self.sort_key = (request.priority, arrival)
        self.max_blocks = -(-(self.num_prompt_tokens + request.max_tokens) // block_size)
        self.deadline_s = math.inf if request.timeout_s is None else time.monotonic() + request.timeout_s
        seed = request.sampling.seed
        self.seed = random.getrandbits(64) if seed is None else seed & (2**64 - 1)
        self.edits = LogitEdits.of(request, matcher)
        self.prompt_logprobs: list[TokenLogprob] = []
        self.is_greedy = request.sampling.temperature < GREEDY_BELOW

        self.block_table: list[int] = []
        self.num_computed_tokens = 0
        self.num_published_blocks = 0
        self.parent_uid = ROOT_UID
        """uid of the last published block, the parent of the next."""
        self.num_cached_tokens: int | None = None
        """Prompt tokens found in the cache when the sequence first started to run."""
        self.has_output = False

    @property
    def num_generated_tokens(self) -> int:
        """Sampled tokens so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether every token of the prompt needs logits, so that none can come out of the cache."""
        return self.sampling.prompt_logprobs is not None and not self.has_output

    def give_up_blocks(self) -> list[int]:
        """Forget all KV, because the sequence is over or preempted; return the blocks."""
        blocks, self.block_table = self.block_table, []
        self.num_computed_tokens = self.num_published_blocks = 0
        self.parent_uid = ROOT_UID
        self.prompt_logprobs = []
        return blocks

    def append(self, token_id: int) -> None:
        """Add a sampled token."""
        self.token_ids.append(token_id)
        if self.edits is not None:
            self.edits.advance(token_id)

    @property
    def failure(self) -> GuideError | None:
        """Why the sequence cannot go on although its step went well."""
        error = self.edits.matcher.error if self.edits and self.edits.matcher else None
        return GuideError(f"the guide cannot be followed: {error}", "guide") if error else None


@dataclass(slots=True)
class ScheduledSequence:
    """A sequence's share of one step: tokens [start, start + num_tokens) get KV, the last `num_rows` get logits."""

    seq: Sequence
    start: int
    num_tokens: int
    num_rows: int

    @property
    def samples(self) -> bool:
        """Whether a token is sampled from the last row: nothing is left to compute before it."""
        return self.start + self.num_tokens == len(self.seq.token_ids)


@dataclass(slots=True)
class ScheduledBatch:
    """What one step computes, decodes first. The rows of logits are those of the items, in their order."""

    items: list[ScheduledSequence]

    @property
    def sampled(self) -> list[Sequence]:
        """The sequences that get a token, in order."""
        return [item.seq for item in self.items if item.samples]

    @property
    def num_rows(self) -> int:
        """Rows of logits."""
        return sum(item.num_rows for item in self.items)


@dataclass(frozen=True, slots=True)
class SampledToken:
    """What was drawn for a sequence."""

    token_id: int
    logprob: TokenLogprob | None = None
