"""A sequence on its way through the executor, and the batch of one step."""

import random
from dataclasses import dataclass

from engines.contract import GenerationRequest
from engines.openvino.blocks import ROOT_UID, BlockKey

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing logits by less loses nothing but float range."""


class Sequence:
    """One request's tokens and KV blocks. Only the scheduler changes it."""

    def __init__(self, request: GenerationRequest, prompt_keys: list[BlockKey], arrival: int, block_size: int) -> None:
        self.request = request
        self.seq_id = request.seq_id
        self.sampling = request.sampling
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.prompt_keys = prompt_keys
        self.sort_key = (request.priority, arrival)
        self.max_blocks = -(-(self.num_prompt_tokens + request.max_tokens) // block_size)
        seed = request.sampling.seed
        self.seed = random.getrandbits(64) if seed is None else seed & (2**64 - 1)
        self.is_greedy = request.sampling.temperature < GREEDY_BELOW

        self.block_table: list[int] = []
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_published_blocks = 0
        self.parent_uid = ROOT_UID
        """uid of the last published block, the parent of the next."""
        self.has_output = False

    @property
    def num_generated_tokens(self) -> int:
        """Sampled tokens so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens without KV: the rest of the prompt, or the one token sampled last."""
        return len(self.token_ids) - self.num_computed_tokens


@dataclass(slots=True)
class ScheduledSequence:
    """A sequence's share of one step: tokens [start, start + num_tokens) get KV, the last `num_rows` get logits."""

    seq: Sequence
    start: int
    num_tokens: int
    num_rows: int


@dataclass(slots=True)
class ScheduledBatch:
    """What one step computes, decodes first."""

    items: list[ScheduledSequence]

    @property
    def sampled(self) -> list[ScheduledSequence]:
        """The items that get logits, in the order of the logits' rows."""
        return [item for item in self.items if item.num_rows]
