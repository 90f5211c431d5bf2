"""A closed loop over one executor: so many clients, each of which sends its next request when its last one is over."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from engines import Executor, GenerationRequest, Guide, SamplingParams

Prompts = Sequence[tuple[int, ...]]
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Kind:
    """What every request of a run asks for."""

    sampling: SamplingParams
    guide: Guide | None = None


def token_prompts(num_prompts: int, num_tokens: int, seed: int) -> Prompts:
    """Return prompts of random tokens."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(100, 40000, num_tokens).tolist()) for _ in range(num_prompts)]


async def closed_loop(executor: Executor, prompts: Prompts, kind: Kind, max_tokens: int, concurrency: int) -> float:
    """Return generated tokens per second. Every answer must have `max_tokens`."""
    waiting = list(prompts)
    start = time.perf_counter()
    counts = await asyncio.gather(*(_client(executor, waiting, kind, max_tokens) for _ in range(concurrency)))
    assert sum(counts) == len(prompts) * max_tokens, "a sequence ended early"
    return sum(counts) / (time.perf_counter() - start)


async def _client(executor: Executor, waiting: list[tuple[int, ...]], kind: Kind, max_tokens: int) -> int:
    num_tokens = 0
    while waiting:
        request = GenerationRequest(str(next(_numbers)), waiting.pop(), kind.sampling, max_tokens, guide=kind.guide)
        async for output in executor.submit(request):
            num_tokens += len(output.token_ids)
    return num_tokens
