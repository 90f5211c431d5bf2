from collections.abc import Sequence

import pytest

from benchmarks.client import ServerInfo
from benchmarks.compare import Spread, compute_ratios
from benchmarks.load import ClosedLoop, Round
from benchmarks.report import Row
from benchmarks.sse import Answer, Failure, Usage
from benchmarks.stats import summarise


def rows(index: int, durations_s: Sequence[float], result: Answer | Failure, concurrency: int = 4) -> list[Row]:
    """One row per duration, in each of which the server gave `result` once."""
    server, load = ServerInfo("http://scripted/v1", "scripted", None), ClosedLoop(concurrency)
    measured = (Round([result], duration_s, client_cpu_s=0.1, max_lateness_s=0) for duration_s in durations_s)
    return [Row(server, index, load, number, summarise(each), {}) for number, each in enumerate(measured)]


def answer(usage: Usage | None = None) -> Answer:
    return Answer([1.0, 2.0], last_token_s=2.0, end_s=2.0, finish_reason="stop", usage=usage)


def test_the_ratio_is_that_of_the_medians() -> None:
    counted = answer(Usage(5, 8))
    found = {ratio.figure: ratio for ratio in compute_ratios(rows(0, [1, 2, 8], counted), rows(1, [4, 4, 16], counted))}
    assert found["out tok/s"].first == Spread(median=4, low=1, high=8)
    assert found["out tok/s"].second == Spread(median=2, low=0.5, high=2)
    assert found["out tok/s"].ratio == pytest.approx(2)
    assert found["TTFT p50 ms"].ratio == 1


def test_each_load_is_compared_with_itself() -> None:
    first = rows(0, [1], answer()) + rows(0, [1], answer(), concurrency=8)
    second = rows(1, [2], answer()) + rows(1, [4], answer(), concurrency=8)
    found = [(ratio.load, ratio.ratio) for ratio in compute_ratios(first, second) if ratio.figure == "req/s"]
    assert found == [("4 clients", 2), ("8 clients", 4)]


def test_a_figure_that_one_server_lacks_is_left_out() -> None:
    found = compute_ratios(rows(0, [1], answer(Usage(5, 8))), rows(1, [1], answer()))
    assert not {"out tok/s", "TPOT p50 ms"} & {ratio.figure for ratio in found}


def test_there_is_no_ratio_to_a_server_that_answered_nothing() -> None:
    (found,) = compute_ratios(rows(0, [1], answer()), rows(1, [1], Failure("timeout", "")))
    assert (found.figure, found.ratio) == ("req/s", None)
