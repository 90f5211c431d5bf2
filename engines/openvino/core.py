"""One engine without threads: scheduler, runner and sampler, step by step."""

import logging
import time
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engines.contract import ExecutorStats, TokenOutput
from engines.errors import EngineError, StepFailedError
from engines.openvino.sampler import Sampler
from engines.openvino.scheduler import Scheduler
from engines.openvino.sequence import ScheduledBatch, Sequence

log = logging.getLogger(__name__)


class Runner(Protocol):
    """What the core needs of a model."""

    vocab_size: int

    def forward(self, batch: ScheduledBatch) -> NDArray[np.float32]:
        """Run one step and return logits [num_rows, vocab_size]."""
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
        self._num_steps = 0
        self._recent: deque[tuple[float, float, int]] = deque()  # end of step, its duration, tokens generated

    def step(self) -> list[Outcome]:
        """Run one step, prefill chunks and decodes together, and return what each sequence sampled.

        If the model throws, the sequences of this step are over and the engine is as good as before.
        """
        start = time.perf_counter()
        batch = self.scheduler.schedule()
        if batch is None:
            return []
        try:
            sampled_token_ids = self._forward_and_sample(batch)
        except Exception:
            log.exception("a step failed; its %d sequences are over", len(batch.items))
            return [(seq_id, StepFailedError("the model failed in this step")) for seq_id in self.scheduler.fail(batch)]
        outputs: list[Outcome] = [*self.scheduler.commit(batch, sampled_token_ids)]
        self._book(start, len(outputs))
        return outputs

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
            tokens_per_s=self._tokens_per_s(),
            step_time_s=sum(duration for _, duration, _ in self._recent) / len(self._recent) if self._recent else 0.0,
        )

    def _forward_and_sample(self, batch: ScheduledBatch) -> list[int]:
        logits = self.runner.forward(batch)  # [num_rows, vocab_size]
        seqs: list[Sequence] = [item.seq for item in batch.items for _ in range(item.num_rows)]
        return self.sampler.sample(logits, seqs) if seqs else []

    def _book(self, start: float, num_tokens: int) -> None:
        now = time.perf_counter()
        self._num_steps += 1
        self._recent.append((now, now - start, num_tokens))
        while now - self._recent[0][0] > RATE_WINDOW_S:
            self._recent.popleft()

    def _tokens_per_s(self) -> float:
        if not self._recent:
            return 0.0
        end, duration, _ = self._recent[0]
        elapsed = time.perf_counter() - (end - duration)
        return sum(num_tokens for _, _, num_tokens in self._recent) / elapsed
