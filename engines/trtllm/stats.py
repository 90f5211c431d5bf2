"""TensorRT-LLM's iteration statistics and our own counts to ExecutorStats.

Source of the keys: `IterationStats` as JSON, cpp/tensorrt_llm/executor/jsonSerialization.cpp, release 1.2.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from engines.contract import ExecutorStats, TokenOutput

WINDOW_S = 5.0


class Stats:
    """What the executor counts itself, and what each step reported. Used on the event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_generated_tokens = 0
        self._num_preemptions = 0
        self._last_step = -1
        self._num_steps = 0
        self._num_blocks_used = 0
        self._generated: deque[tuple[float, int]] = deque()
        self._steps: deque[tuple[float, float]] = deque()
        self.num_blocks: int | None = None
        """Blocks of the KV cache on the GPU; None until a step told."""

    def count(self, output: TokenOutput, num_prompt_tokens: int) -> None:
        """Count what a sequence was given."""
        if output.num_cached_tokens is not None:
            self._num_prompt_tokens += num_prompt_tokens
            self._num_cached_tokens += output.num_cached_tokens
        self._num_generated_tokens += len(output.token_ids)
        self._generated.append((self._clock(), len(output.token_ids)))

    def fold(self, step: Mapping[str, Any]) -> None:
        """Take in what one step reported. Fields that this build leaves out count as nothing."""
        number = int(step.get("iter", self._last_step + 1))
        self._num_steps += number != self._last_step
        self._last_step = number
        self._steps.append((self._clock(), float(step.get("iterLatencyMS", 0.0)) / 1000))
        cache = step.get("kvCacheStats") or {}
        if "maxNumBlocks" in cache:
            self.num_blocks = int(cache["maxNumBlocks"])
            self._num_blocks_used = int(cache.get("usedNumBlocks", 0))
        batch = step.get("inflightBatchingStats") or {}
        self._num_preemptions += int(batch.get("numPausedRequests", 0))

    def snapshot(self, num_running: int, num_waiting: int) -> ExecutorStats:
        """Put it all together. Blocks that can still be hit are free ones there: TensorRT-LLM does not count them."""
        self._forget_old()
        # Steps report while they run: nothing tells of the blocks that the last sequence gives back.
        used = self._num_blocks_used if num_running else 0
        steps = [seconds for _, seconds in self._steps]
        return ExecutorStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_blocks_used=used,
            num_blocks_free=(self.num_blocks or 0) - used,
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_generated_tokens=self._num_generated_tokens,
            num_preemptions=self._num_preemptions,
            tokens_per_s=sum(count for _, count in self._generated) / WINDOW_S,
            step_time_s=sum(steps) / len(steps) if steps else 0.0,
        )

    def _forget_old(self) -> None:
        horizon = self._clock() - WINDOW_S
        for window in (self._generated, self._steps):
            while window and window[0][0] < horizon:
                window.popleft()
