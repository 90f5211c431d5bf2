"""One engine without threads: scheduler, runner and sampler, step by step."""

import logging
import time
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engines.contract import ExecutorStats, TokenOutput
from engines.errors import EngineError, StepFailedError, TimedOutError
from engines.openvino import logit_edits
from engines.openvino.logprobs import RawLogprobs
from engines.openvino.mask_filler import MaskFiller
from engines.openvino.sampler import Sampler
from engines.openvino.scheduler import Scheduler
from engines.openvino.sequence import SampledToken, ScheduledBatch, Sequence

log = logging.getLogger(__name__)


class Runner(Protocol):
    """What the core needs of a model."""

    vocab_size: int

    def forward(self, batch: ScheduledBatch) -> NDArray[np.float32]:
        """Run one step and return logits [num_rows, vocab_size]."""
        ...

    def close(self) -> None:
        """Give memory back."""
        ...


Outcome = tuple[str, TokenOutput | EngineError]
"""A sequence's id and what a step gave it."""

RATE_WINDOW_S = 5.0
"""Rates in the stats cover so many seconds."""


class EngineCore:
    """Runs steps. Owned by one thread."""

    def __init__(self, runner: Runner, scheduler: Scheduler) -> None:
        self.runner = runner
        self.scheduler = scheduler
        self.sampler = Sampler(runner.vocab_size)
        self.masks = MaskFiller()
        self._num_steps = 0
        self._recent = RecentSteps()

    def step(self) -> list[Outcome]:
        """Run one step, prefill chunks and decodes together, and return what each sequence sampled.

        If the model throws, the sequences of this step are over and the engine is as good as before.
        """
        start = time.perf_counter()
        late: list[Outcome] = [(seq_id, TimedOutError()) for seq_id in self.scheduler.expire(time.monotonic())]
        batch = self.scheduler.schedule()
        return late + self._run(batch, start) if batch else late

    def _run(self, batch: ScheduledBatch, start: float) -> list[Outcome]:
        seqs = batch.sampled
        try:
            sampled = self._forward_and_sample(batch, seqs)
        except Exception:
            log.exception("a step failed; its %d sequences are over", len(batch.items))
            return [(seq_id, StepFailedError("the model failed in this step")) for seq_id in self.scheduler.fail(batch)]
        outputs: list[Outcome] = [*self.scheduler.commit(batch, sampled)]
        self._num_steps += 1
        self._recent.add(start, time.perf_counter(), len(sampled))
        stuck = {seq.seq_id: seq.failure for seq in seqs if seq.failure is not None}
        return [(seq_id, stuck.get(seq_id, output)) for seq_id, output in outputs] if stuck else outputs

    def close(self) -> None:
        """Give the model's memory back. Idempotent; there are no steps afterwards."""
        self.masks.close()
        self.runner.close()

    def stats(self) -> ExecutorStats:
        """Return a snapshot of now."""
        scheduler, pool = self.scheduler, self.scheduler.pool
        return ExecutorStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_blocks_used=pool.num_used,
            num_blocks_free=pool.num_free,
            num_blocks_cached=pool.num_cached,
            num_steps=self._num_steps,
            num_prompt_tokens=scheduler.counters.num_prompt_tokens,
            num_cached_tokens=scheduler.counters.num_cached_tokens,
            num_generated_tokens=scheduler.counters.num_generated_tokens,
            num_preemptions=scheduler.counters.num_preemptions,
            tokens_per_s=self._recent.tokens_per_s(),
            step_time_s=self._recent.step_time_s,
        )

    def _forward_and_sample(self, batch: ScheduledBatch, seqs: list[Sequence]) -> list[SampledToken]:
        self.masks.begin(seq.edits.matcher for seq in seqs if seq.edits and seq.edits.matcher)
        try:
            logits = self.runner.forward(batch)  # [num_rows, vocab_size]
        finally:
            self.masks.wait()
        if batch.num_rows > len(seqs):
            logits = self._keep_prompt_logprobs(batch, logits)
        if not seqs:
            return []
        asking = [row for row, seq in enumerate(seqs) if seq.sampling.logprobs is not None]
        raw = RawLogprobs(logits, asking, [seqs[row].sampling.logprobs or 0 for row in asking]) if asking else None
        logit_edits.apply(logits, [seq.edits for seq in seqs], [seq.token_ids for seq in seqs])
        token_ids = self.sampler.sample(logits, seqs)
        sampled = [SampledToken(token_id) for token_id in token_ids]
        if raw is not None:
            for row, logprob in zip(asking, raw.of([token_ids[row] for row in asking]), strict=True):
                sampled[row] = SampledToken(token_ids[row], logprob)
        return sampled

    def _keep_prompt_logprobs(self, batch: ScheduledBatch, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Report on the prompts that asked for it; return the rows that tokens are sampled from."""
        end = 0
        sampled_rows = []
        for item in batch.items:
            begin, end = end, end + item.num_rows
            if item.samples:
                sampled_rows.append(end - 1)
            if item.seq.wants_prompt_logprobs and item.start < item.seq.num_prompt_tokens:
                following = item.seq.token_ids[item.start + 1 : item.start + item.num_tokens + 1]
                rows = range(begin, begin + len(following))
                counts = [item.seq.sampling.prompt_logprobs or 0] * len(following)
                item.seq.prompt_logprobs += RawLogprobs(logits, rows, counts).of(following)
        return logits[sampled_rows]


class RecentSteps:
    """The steps of the last RATE_WINDOW_S, kept as running sums: they are asked for after every step."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float, int]] = deque()  # start, end, tokens generated
        self._duration_s = 0.0
        self._num_tokens = 0

    def add(self, start_s: float, end_s: float, num_tokens: int) -> None:
        """Take a step in and let go of those that are too old."""
        self._steps.append((start_s, end_s, num_tokens))
        self._duration_s += end_s - start_s
        self._num_tokens += num_tokens
        while end_s - self._steps[0][1] > RATE_WINDOW_S:
            old_start_s, old_end_s, old_tokens = self._steps.popleft()
            self._duration_s -= old_end_s - old_start_s
            self._num_tokens -= old_tokens

    @property
    def step_time_s(self) -> float:
        """Mean duration of a step."""
        return self._duration_s / len(self._steps) if self._steps else 0.0

    def tokens_per_s(self) -> float:
        """Generated tokens per second, idle time included."""
        return self._num_tokens / (time.perf_counter() - self._steps[0][0]) if self._steps else 0.0
