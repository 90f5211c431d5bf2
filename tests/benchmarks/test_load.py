import asyncio

import pytest

from benchmarks.load import ClosedLoop, OpenLoop, run_round
from benchmarks.sse import Answer, Failure

BODIES = [b"%d" % number for number in range(20)]


class Recorder:
    """Answers after a few turns of the loop and notes how many requests ran at the same time."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.most = 0
        self._running = 0

    async def send(self, body: bytes) -> Answer | Failure:
        self.bodies.append(body)
        self._running += 1
        self.most = max(self.most, self._running)
        for _ in range(3):
            await asyncio.sleep(0)
        self._running -= 1
        return Failure("scripted", body.decode())


@pytest.mark.parametrize("concurrency", [1, 4, 64])
def test_a_closed_loop_keeps_its_clients_busy_until_all_is_sent(concurrency: int) -> None:
    recorder = Recorder()
    measured = asyncio.run(run_round(recorder.send, BODIES, ClosedLoop(concurrency)))
    assert recorder.bodies == BODIES
    assert recorder.most == min(concurrency, len(BODIES))
    assert len(measured.results) == len(BODIES)
    assert measured.max_lateness_s == 0


def test_an_open_loop_waits_for_nobody() -> None:
    answered = asyncio.Event()
    sent: list[bytes] = []

    async def send(body: bytes) -> Answer | Failure:
        sent.append(body)
        if len(sent) == len(BODIES):
            answered.set()  # all are under way before the first is answered
        await answered.wait()
        return Failure("scripted", "")

    measured = asyncio.run(run_round(send, BODIES, OpenLoop(rate=1e4, seed=0)))
    assert sent == BODIES
    assert len(measured.results) == len(BODIES)


def test_arrivals_follow_from_the_seed_and_come_at_the_rate() -> None:
    arrivals = OpenLoop(rate=4.0, seed=1).arrivals_s(4001)
    assert arrivals == OpenLoop(rate=4.0, seed=1).arrivals_s(4001)
    assert arrivals != OpenLoop(rate=4.0, seed=2).arrivals_s(4001)
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(1000, rel=0.05)
