"""Two servers in one run. Machines are noisy: only figures of alternating rounds can be held against each other."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Self

from rich.console import Console
from rich.table import Table

from benchmarks.load import Load
from benchmarks.report import MISSING, Row, load_name, milliseconds, number, print_notes
from benchmarks.stats import Summary

Figure = Callable[[Summary], float | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure of one server over its rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarise at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure of both servers under one load, and the first's median over the second's."""

    load: str
    figure: str
    first: Spread
    second: Spread
    ratio: float | None  # None where the second's median is 0


def _median_of(name: str) -> Figure:
    """Return the figure "median of this distribution"."""

    def figure(summary: Summary) -> float | None:
        sample = getattr(summary, name)
        return None if sample is None else sample.p50

    return figure


FIGURES: dict[str, Figure] = {
    "out tok/s": attrgetter("output_tokens_per_s"),
    "req/s": attrgetter("requests_per_s"),
    "TTFT p50 ms": _median_of("ttft_s"),
    "ITL p50 ms": _median_of("itl_s"),
    "TPOT p50 ms": _median_of("tpot_s"),
    "E2E p50 ms": _median_of("e2e_s"),
}


def compute_ratios(first: Sequence[Row], second: Sequence[Row]) -> list[Ratio]:
    """Compare two servers' rows load by load; figures one of them lacks are left out."""
    loads = dict.fromkeys(row.load for row in first)
    found = (_ratio(load, name, first, second) for load in loads for name in FIGURES)
    return [ratio for ratio in found if ratio is not None]


def _ratio(load: Load, name: str, first: Sequence[Row], second: Sequence[Row]) -> Ratio | None:
    values, others = _values(load, name, first), _values(load, name, second)
    if not values or not others:
        return None
    spread, other = Spread.of(values), Spread.of(others)
    return Ratio(load_name(load), name, spread, other, spread.median / other.median if other.median else None)


def _values(load: Load, name: str, rows: Sequence[Row]) -> list[float]:
    """Return one figure of every round under one load in which it is known."""
    figures = (FIGURES[name](row.summary) for row in rows if row.load == load)
    return [figure for figure in figures if figure is not None]


def print_ratios(console: Console, first: Sequence[Row], second: Sequence[Row]) -> None:
    """Print each figure's medians and ranges over the rounds, and their ratio."""
    names = [
        f"{letter}: {rows[0].server.model}, {rows[0].server.base_url}"
        for letter, rows in zip("AB", (first, second), strict=True)
    ]
    console.print(*names, sep="\n", markup=False)
    table = Table("load", "figure", box=None, pad_edge=False)
    for title in ("A", "range", "B", "range", "A / B"):
        table.add_column(title, justify="right")
    for ratio in compute_ratios(first, second):
        cells = [cell for spread in (ratio.first, ratio.second) for cell in _cells(ratio.figure, spread)]
        table.add_row(ratio.load, ratio.figure, *cells, MISSING if ratio.ratio is None else f"{ratio.ratio:.3f}")
    console.print(table)
    for letter, rows in zip("AB", (first, second), strict=True):
        shares = [row.summary.client_cpu_share for row in rows]
        console.print(f"{letter}: client CPU {min(shares):.0%} to {max(shares):.0%} of a core")
        print_notes(console, rows)


def _cells(figure: str, spread: Spread) -> tuple[str, str]:
    """Return the median and the range."""
    show = milliseconds if figure.endswith(" ms") else partial(number, digits=2)
    return show(spread.median), f"{show(spread.low)} - {show(spread.high)}"
