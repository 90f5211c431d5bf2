"""From timed answers to figures. Failed requests are counted and appear in no other figure."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.load import Round
from benchmarks.sse import Answer, Failure, Usage


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of a sample, in its own unit."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Summarise a sample; None if it is empty."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(math.fsum(ordered) / len(ordered), *(percentile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99)))


@dataclass(frozen=True, slots=True)
class Summary:
    """One round in figures; names and units as in benchmarks/README.md.

    Whatever needs token counts is None unless the server gave its usage with every answer.
    """

    num_requests: int
    num_failed: int
    errors: Mapping[str, int]
    finish_reasons: Mapping[str, int]
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    num_chunks: int
    ttft_s: Distribution | None
    itl_s: Distribution | None
    tpot_s: Distribution | None
    e2e_s: Distribution | None
    client_cpu_s: float
    client_cpu_share: float
    client_us_per_chunk: float | None
    max_lateness_s: float


def summarise(measured: Round) -> Summary:
    """Compute the figures of a round."""
    answers = [result for result in measured.results if isinstance(result, Answer)]
    failures = [result for result in measured.results if isinstance(result, Failure)]
    usages = _usages(answers)
    completion_tokens = sum(usage.completion_tokens for usage in usages) if usages else None
    num_chunks = sum(len(answer.text_times_s) for answer in answers)
    return Summary(
        num_requests=len(measured.results),
        num_failed=len(failures),
        errors=dict(Counter(failure.kind for failure in failures)),
        finish_reasons=dict(Counter(str(answer.finish_reason) for answer in answers)),
        duration_s=measured.duration_s,
        requests_per_s=len(answers) / measured.duration_s,
        output_tokens_per_s=None if completion_tokens is None else completion_tokens / measured.duration_s,
        prompt_tokens=sum(usage.prompt_tokens for usage in usages) if usages else None,
        completion_tokens=completion_tokens,
        cached_tokens=_cached_tokens(usages),
        num_chunks=num_chunks,
        ttft_s=Distribution.of(ttft_s(answer) for answer in answers),
        itl_s=Distribution.of(gap for answer in answers for gap in itl_s(answer)),
        tpot_s=Distribution.of(tpot for answer in answers if usages and (tpot := tpot_s(answer)) is not None),
        e2e_s=Distribution.of(answer.end_s for answer in answers),
        client_cpu_s=measured.client_cpu_s,
        client_cpu_share=measured.client_cpu_s / measured.duration_s,
        client_us_per_chunk=1e6 * measured.client_cpu_s / num_chunks if num_chunks else None,
        max_lateness_s=measured.max_lateness_s,
    )


def ttft_s(answer: Answer) -> float:
    """Time to the first text; of an answer without any, to its end token."""
    return answer.text_times_s[0] if answer.text_times_s else answer.last_token_s


def itl_s(answer: Answer) -> list[float]:
    """Every gap between two events with text."""
    return [later - earlier for earlier, later in itertools.pairwise(answer.text_times_s)]


def tpot_s(answer: Answer) -> float | None:
    """Time per output token after the first; None if the server did not count tokens, or counted one."""
    if answer.usage is None or answer.usage.completion_tokens < 2:
        return None
    return (answer.last_token_s - ttft_s(answer)) / (answer.usage.completion_tokens - 1)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between the two nearest ranks, as numpy does; `ordered` ascends and is not empty."""
    rank = share * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _usages(answers: Sequence[Answer]) -> list[Usage]:
    """Return everyone's usage, or nothing if one lacks it: a rate over a part of the answers would be a guess."""
    usages = [answer.usage for answer in answers if answer.usage is not None]
    return usages if len(usages) == len(answers) else []


def _cached_tokens(usages: Sequence[Usage]) -> int | None:
    counts = [usage.cached_tokens for usage in usages if usage.cached_tokens is not None]
    return sum(counts) if counts else None
