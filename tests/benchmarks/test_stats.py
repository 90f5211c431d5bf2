import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load import Round
from benchmarks.sse import Answer, Failure, Usage
from benchmarks.stats import Distribution, itl_s, percentile, summarise, tpot_s, ttft_s


def answer(*times: float, tokens: int | None = None, last: float | None = None, prompt: int = 10) -> Answer:
    counted = None if tokens is None else Usage(prompt, tokens)
    last_token = times[-1] if last is None else last
    return Answer(times, last_token_s=last_token, end_s=last_token + 0.5, finish_reason="stop", usage=counted)


def measured(*results: Answer | Failure, duration_s: float = 4.0) -> Round:
    return Round(results, duration_s, client_cpu_s=1.0, max_lateness_s=0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    expected = np.quantile(values, share)
    assert percentile(sorted(values), share) == pytest.approx(float(expected), rel=1e-9, abs=1e-6)


def test_a_distribution_has_mean_and_percentiles() -> None:
    found = Distribution.of([float(value) for value in range(101)])
    assert found == Distribution(mean=50, p50=50, p90=90, p95=95, p99=99)
    assert Distribution.of([]) is None


def test_latencies_of_one_answer() -> None:
    found = answer(1.0, 1.5, 3.0, tokens=5, last=3.5)
    assert ttft_s(found) == 1.0
    assert itl_s(found) == [0.5, 1.5]
    assert tpot_s(found) == pytest.approx((3.5 - 1.0) / 4)  # by the server's count, not by the three events


def test_an_answer_of_one_token_has_no_time_per_further_token() -> None:
    assert tpot_s(answer(1.0, tokens=1)) is None
    silent = answer(last=2.0, tokens=1)
    assert (ttft_s(silent), itl_s(silent)) == (2.0, [])


def test_a_round_sums_rates_and_pools_latencies() -> None:
    found = summarise(measured(answer(1.0, 2.0, tokens=3), answer(2.0, 5.0, tokens=5, prompt=30)))
    assert (found.requests_per_s, found.output_tokens_per_s) == (0.5, 2.0)
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (40, 8, None)
    assert found.ttft_s is not None
    assert found.ttft_s.mean == 1.5
    assert found.itl_s is not None
    assert found.itl_s.p50 == 2.0
    assert (found.client_cpu_share, found.client_us_per_chunk) == (0.25, 250_000)


def test_failures_are_counted_and_appear_in_no_rate() -> None:
    failures = [Failure("http_429", "busy"), Failure("http_429", "busy"), Failure("timeout", "")]
    found = summarise(measured(answer(1.0, 2.0, tokens=4), *failures))
    assert (found.num_requests, found.num_failed) == (4, 3)
    assert found.errors == {"http_429": 2, "timeout": 1}
    assert (found.requests_per_s, found.output_tokens_per_s) == (0.25, 1.0)


def test_without_usage_of_every_answer_nothing_is_said_about_tokens() -> None:
    found = summarise(measured(answer(1.0, 2.0, tokens=4), answer(1.0, 2.0)))
    assert (found.output_tokens_per_s, found.prompt_tokens, found.completion_tokens, found.tpot_s) == (None,) * 4
    assert found.requests_per_s == 0.5
    assert found.itl_s is not None


def test_a_round_without_answers_has_no_latencies() -> None:
    found = summarise(measured(Failure("connection", "refused")))
    assert (found.ttft_s, found.itl_s, found.e2e_s, found.client_us_per_chunk) == (None,) * 4
    assert found.requests_per_s == 0
