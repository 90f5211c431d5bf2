"""Waiting and running sequences to one `ScheduledBatch` per step. Bookkeeping, no tensors.

Each step takes the decodes first, then goes on with prompts under way, then admits from the queue, until the token
budget is used up. Three invariants:

- A prefill chunk never has exactly one token (unless the prompt has): kernels compute a single token in another way,
  which in bf16 changes the logits. So however a prompt is cut or found in the cache, its KV is the same bit for bit.
- Only blocks of the prompt are published. KV of generated tokens comes from one-token steps and would differ in its
  last bits from what a prefill computes; what the cache holds must never change an answer.
- A sequence whose next block a running one is just computing waits for it instead of computing it again.

A preempted sequence goes back to the queue with its tokens and without its KV. When it runs again its prompt is
prefilled, or found, and its generated tokens are put in one by one as they were the first time: the same KV, bit for
bit, at the price of a decode each.
"""

from bisect import insort
from dataclasses import dataclass, replace

from engines.contract import FinishReason, TokenOutput
from engines.openvino.blocks import BlockKey, BlockPool, Match
from engines.openvino.policy import Demand, GuaranteedNoEvict, Policy, Supply
from engines.openvino.sequence import SampledToken, ScheduledBatch, ScheduledSequence, Sequence

MIN_CHUNK = 2
"""Fewest tokens of a prefill chunk."""


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0


class Scheduler:
    """Owns the queue, the running sequences and the block pool. Called from the engine thread only."""

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        max_batch_size: int,
        max_num_tokens: int,
        policy: Policy | None = None,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.max_batch_size = max_batch_size
        self.max_num_tokens = max_num_tokens
        self.policy = policy or GuaranteedNoEvict()
        self.waiting: list[Sequence] = []  # sorted by sort_key
        self.running: list[Sequence] = []
        self.counters = Counters()
        self._computing: set[bytes] = set()  # digests of prompt blocks that running sequences will publish

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def add(self, seq: Sequence) -> None:
        """Queue a sequence behind those of its priority."""
        insort(self.waiting, seq, key=lambda other: other.sort_key)

    def cancel(self, seq_id: str) -> None:
        """Drop a sequence wherever it is."""
        for seq in self.running:
            if seq.seq_id == seq_id:
                self.finish(seq)
                return
        self.waiting = [seq for seq in self.waiting if seq.seq_id != seq_id]

    def finish(self, seq: Sequence) -> None:
        """Take a running sequence out and give its blocks back."""
        self.running.remove(seq)
        self._computing.difference_update(key.digest for key in seq.prompt_keys[seq.num_published_blocks :])
        self.pool.release(seq.give_up_blocks())

    def expire(self, now_s: float) -> list[str]:
        """Drop the sequences whose deadline has passed by `now_s`, a monotonic time; return their ids."""
        late = [seq.seq_id for seq in (*self.running, *self.waiting) if seq.deadline_s <= now_s]
        for seq_id in late:
            self.cancel(seq_id)
        return late

    def schedule(self) -> ScheduledBatch | None:
        """Choose what the next step computes and give it blocks; None when nothing can run."""
        items: dict[str, ScheduledSequence] = {}
        self.running.sort(key=lambda seq: seq.sort_key)
        for seq in [seq for seq in self.running if seq.num_computed_tokens >= seq.num_prompt_tokens]:
            self._grant(seq, 1, items)
        for seq in [seq for seq in self.running if seq.num_computed_tokens < seq.num_prompt_tokens]:
            self._schedule_chunk(seq, items)
        self._admit(items)
        return ScheduledBatch(list(items.values())) if items else None

    def commit(self, batch: ScheduledBatch, sampled: list[SampledToken]) -> list[tuple[str, TokenOutput]]:
        """Book a step that succeeded: KV that exists now, published blocks, new tokens, sequences that ended."""
        for item in batch.items:
            item.seq.num_computed_tokens = item.start + item.num_tokens
            self._publish(item.seq)
        return [(seq.seq_id, self._append(seq, token)) for seq, token in zip(batch.sampled, sampled, strict=True)]

    def fail(self, batch: ScheduledBatch) -> list[str]:
        """Drop the sequences of a step that threw; return their ids."""
        for item in batch.items:
            self.finish(item.seq)
        return [item.seq.seq_id for item in batch.items]

    def _budget(self, items: dict[str, ScheduledSequence]) -> int:
        return self.max_num_tokens - sum(item.num_tokens for item in items.values())

    def _schedule_chunk(self, seq: Sequence, items: dict[str, ScheduledSequence]) -> None:
        num_tokens = chunk_size(seq.num_prompt_tokens - seq.num_computed_tokens, self._budget(items))
        if num_tokens:
            self._grant(seq, num_tokens, items)

    def _admit(self, items: dict[str, ScheduledSequence]) -> None:
        """Start waiting sequences in order. First come, first served: nobody overtakes one that lacks blocks."""
        position = 0
        while (
            position < len(self.waiting)
            and len(self.running) < self.max_batch_size
            and self._budget(items) >= MIN_CHUNK
        ):
            seq = self.waiting[position]
            keys = self._reusable_keys(seq)
            match = self.pool.match(keys)
            if len(match.blocks) < len(keys) and keys[len(match.blocks)].digest in self._computing:
                position += 1  # waits for a block, not for resources: the next one may go first
                continue
            if not self.policy.may_admit(self._demand(seq, match), self._supply(match)):
                return
            del self.waiting[position]
            self._start(seq, match)
            self._schedule_chunk(seq, items)

    def _demand(self, seq: Sequence, match: Match) -> Demand:
        num_prompt_blocks = -(-seq.num_prompt_tokens // self.block_size)
        return Demand(num_prompt_blocks - len(match.blocks), seq.max_blocks - len(match.blocks))

    def _supply(self, match: Match) -> Supply:
        num_revived = sum(self.pool.is_idle(block) for block in match.blocks)
        return Supply(
            num_available=self.pool.num_available - num_revived,
            num_promised=sum(seq.max_blocks - len(seq.block_table) for seq in self.running),
            num_running=len(self.running),
        )

    def _reusable_keys(self, seq: Sequence) -> list[BlockKey]:
        """The blocks that may come out of the cache: not the last two tokens, and none where all need logits."""
        if seq.wants_prompt_logprobs:
            return []
        return seq.prompt_keys[: max(seq.num_prompt_tokens - MIN_CHUNK, 0) // self.block_size]

    def _start(self, seq: Sequence, match: Match) -> None:
        self.pool.acquire(match.blocks)
        self.running.append(seq)
        seq.block_table = list(match.blocks)
        seq.parent_uid = match.uid
        seq.num_published_blocks = len(match.blocks)
        seq.num_computed_tokens = len(match.blocks) * self.block_size
        self._computing.update(key.digest for key in seq.prompt_keys[len(match.blocks) :])
        if seq.num_cached_tokens is None:  # not a comeback
            seq.num_cached_tokens = seq.num_computed_tokens
            self.counters.num_prompt_tokens += seq.num_prompt_tokens
            self.counters.num_cached_tokens += seq.num_cached_tokens

    def _grant(self, seq: Sequence, num_tokens: int, items: dict[str, ScheduledSequence]) -> None:
        """Give the next `num_tokens` tokens their blocks and a place in the step, unless the sequence has to give way.

        The last token gets logits once nothing is left to compute; all do where the prompt's log-probabilities are
        asked for.
        """
        if seq not in self.running:
            return  # preempted by one before it in this very step
        start = seq.num_computed_tokens
        missing = -(-(start + num_tokens) // self.block_size) - len(seq.block_table)
        while missing > self.pool.num_available:
            victim = self.policy.choose_victim(self.running)
            self._preempt(victim)
            items.pop(victim.seq_id, None)
            if victim is seq:
                return
        if missing > 0:
            seq.block_table += self.pool.allocate(missing)
        all_rows = seq.wants_prompt_logprobs and start < seq.num_prompt_tokens
        num_rows = num_tokens if all_rows else int(start + num_tokens == len(seq.token_ids))
        items[seq.seq_id] = ScheduledSequence(seq, start, num_tokens, num_rows)

    def _preempt(self, seq: Sequence) -> None:
        self.finish(seq)
        self.add(seq)
        self.counters.num_preemptions += 1

    def _publish(self, seq: Sequence) -> None:
        num_full = min(seq.num_computed_tokens // self.block_size, len(seq.prompt_keys))
        for index in range(seq.num_published_blocks, num_full):
            key = seq.prompt_keys[index]
            seq.parent_uid = self.pool.publish(seq.block_table[index], key, seq.parent_uid)
            self._computing.discard(key.digest)
        seq.num_published_blocks = max(seq.num_published_blocks, num_full)

    def _append(self, seq: Sequence, token: SampledToken) -> TokenOutput:
        seq.append(token.token_id)
        self.counters.num_generated_tokens += 1
        reason = finish_reason(seq, token.token_id)
        is_over = reason is not None or seq.failure is not None
        logprobs = () if token.logprob is None else (token.logprob,)
        output = TokenOutput((token.token_id,), reason, logprobs)
        if not seq.has_output:
            prompt_logprobs = tuple(seq.prompt_logprobs) if seq.wants_prompt_logprobs else None
            output = replace(output, num_cached_tokens=seq.num_cached_tokens, prompt_logprobs=prompt_logprobs)
            seq.has_output = True
        if is_over:
            self.finish(seq)
        return output


def chunk_size(num_left: int, budget: int) -> int:
    """Return how many of the prompt's `num_left` tokens to compute: never 1 of several, and never leaving 1."""
    if num_left == 1:
        return min(budget, 1)
    size = min(num_left, budget)
    if num_left - size == 1:
        size -= 1
    return size if size >= MIN_CHUNK else 0


def finish_reason(seq: Sequence, token_id: int) -> FinishReason | None:
    """Return why the sequence ends with this token, if it does. A stop token beats the length limit."""
    if token_id in seq.request.stop_token_ids:
        return FinishReason.STOP
    if seq.num_generated_tokens >= seq.request.max_tokens:
        return FinishReason.LENGTH
    return None
