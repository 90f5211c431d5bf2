"""How requests are sent: a closed loop of clients that wait for their answers, or arrivals that wait for nobody."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.sse import Answer, Failure

Send = Callable[[bytes], Awaitable[Answer | Failure]]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` clients; each sends its next request when its last one is answered."""

    concurrency: int

    def __str__(self) -> str:
        return str(self.concurrency)

    @property
    def default_num_requests(self) -> int:
        """Enough for the ends of a run, where fewer clients are busy, to weigh little."""
        return max(32, 4 * self.concurrency)


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests arrive as a Poisson process of `rate` per second, whether earlier ones are answered or not."""

    rate: float
    seed: int

    def __str__(self) -> str:
        return f"{self.rate:g}/s"

    @property
    def default_num_requests(self) -> int:
        """About half a minute of arrivals."""
        return max(32, round(30 * self.rate))

    def arrivals_s(self, num_requests: int) -> list[float]:
        """Return the seconds after the start at which requests arrive; the first one at once."""
        rng = random.Random(f"arrivals {self.seed}")
        gaps = [rng.expovariate(self.rate) for _ in range(num_requests - 1)]
        return list(itertools.accumulate(gaps, initial=0.0))


Load = ClosedLoop | OpenLoop


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in one round: from the first request sent to the last answer read."""

    results: Sequence[Answer | Failure]
    duration_s: float
    client_cpu_s: float
    max_lateness_s: float  # the largest delay of an arrival behind its plan; 0 in a closed loop


async def run_round(send: Send, bodies: Sequence[bytes], load: Load) -> Round:
    """Send all bodies under `load` and return when the last one is answered."""
    results: list[Answer | Failure] = []
    started, cpu_started = time.perf_counter(), time.process_time()
    match load:
        case ClosedLoop(concurrency):
            await _run_closed(send, bodies, concurrency, results)
            lateness = 0.0
        case OpenLoop():
            lateness = await _run_open(send, bodies, load.arrivals_s(len(bodies)), results)
    return Round(results, time.perf_counter() - started, time.process_time() - cpu_started, lateness)


async def _run_closed(send: Send, bodies: Sequence[bytes], concurrency: int, results: list[Answer | Failure]) -> None:
    waiting = iter(bodies)

    async def work() -> None:
        for body in waiting:  # shared: whoever is free takes the next
            result = await send(body)
            results.append(result)

    async with asyncio.TaskGroup() as clients:
        for _ in range(concurrency):
            clients.create_task(work())


async def _run_open(
    send: Send, bodies: Sequence[bytes], arrivals_s: Sequence[float], results: list[Answer | Failure]
) -> float:
    """Return the largest delay of an arrival behind its plan, in seconds."""
    lateness = 0.0

    async def work(body: bytes) -> None:
        results.append(await send(body))

    started = time.perf_counter()
    async with asyncio.TaskGroup() as requests:
        for body, arrival_s in zip(bodies, arrivals_s, strict=True):
            await asyncio.sleep(max(0.0, started + arrival_s - time.perf_counter()))
            lateness = max(lateness, time.perf_counter() - started - arrival_s)
            requests.create_task(work(body))
    return lateness
