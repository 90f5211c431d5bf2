"""The figures on paper: tables for people, JSON for everything else."""

import dataclasses
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.client import ServerInfo
from benchmarks.load import ClosedLoop, Load
from benchmarks.sse import Answer, Failure
from benchmarks.stats import Distribution, Summary

BUSY_CLIENT_SHARE = 0.7  # of one core; above it, the client's own queue begins to show in the times
MISSING = "-"
LATENCIES = (("TTFT", "ttft_s"), ("ITL", "itl_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s"))


@dataclass(frozen=True, slots=True)
class Row:
    """One round of one server; `failures` maps each kind of error to one message of that kind."""

    server: ServerInfo
    server_index: int  # 0 or 1: a server may be compared with itself, which shows the noise
    load: Load
    round_index: int
    summary: Summary
    failures: Mapping[str, str]


def failure_examples(results: Iterable[Answer | Failure]) -> dict[str, str]:
    """Return one message for each kind of failure."""
    return {result.kind: result.message for result in results if isinstance(result, Failure)}


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """Print rates and latencies, one row per load, and what a reader must know to trust them."""
    console.print(_rates(rows), _latencies(rows))
    print_notes(console, rows)


def _rates(rows: Sequence[Row]) -> Table:
    table = _table("load", "answers", "failed", "req/s", "out tok/s", "prompt tok", "cached", "out tok", "client CPU")
    for row in rows:
        summary = row.summary
        table.add_row(
            load_name(row.load),
            str(summary.num_requests - summary.num_failed),
            str(summary.num_failed),
            number(summary.requests_per_s, 2),
            number(summary.output_tokens_per_s, 1),
            number(summary.prompt_tokens),
            _share(summary.cached_tokens, summary.prompt_tokens),
            number(summary.completion_tokens),
            f"{summary.client_cpu_share:.0%}, {number(summary.client_us_per_chunk)} us/chunk",
        )
    return table


def _latencies(rows: Sequence[Row]) -> Table:
    table = _table("load", "ms", *(field.name for field in dataclasses.fields(Distribution)))
    for row in rows:
        for title, name in LATENCIES:
            sample: Distribution | None = getattr(row.summary, name)
            figures = (None,) * 5 if sample is None else dataclasses.astuple(sample)
            table.add_row(load_name(row.load), title, *(milliseconds(figure) for figure in figures))
        table.add_section()
    return table


def print_notes(console: Console, rows: Sequence[Row]) -> None:
    """Name failures, missing token counts and a client that was near its own limit."""
    errors = sum((Counter(row.summary.errors) for row in rows), Counter[str]())
    examples = {kind: message for row in rows for kind, message in row.failures.items()}
    for kind, count in errors.most_common():
        console.print(f"failed: {count} x {kind}: {examples[kind]}", markup=False)
    if any(row.summary.output_tokens_per_s is None and row.summary.requests_per_s for row in rows):
        console.print("The server gave answers without usage: nothing that needs a token count is reported.")
    if any(row.summary.client_cpu_share > BUSY_CLIENT_SHARE for row in rows):
        console.print("The client used most of a core: it may have been the limit.")
    lateness = max(row.summary.max_lateness_s for row in rows)
    if lateness:
        console.print(f"Arrivals were up to {milliseconds(lateness)} ms behind their plan.")


def write_json(path: Path, rows: Sequence[Row], extra: Mapping[str, object]) -> None:
    """Write all figures with what is needed to measure them again."""
    report = {
        "command": ["python", "-m", "benchmarks.serve", *hide_key(sys.argv[1:])],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "num_cpus": os.cpu_count()},
        "versions": {"python": platform.python_version()}
        | {name: found for name in ("aiohttp", "llm-server") if (found := _installed(name))},
        **extra,
        "rows": [_row_json(row) for row in rows],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def hide_key(arguments: Sequence[str]) -> list[str]:
    """Return a command line without its API key."""
    hidden = [("--api-key=***" if word.startswith("--api-key=") else word) for word in arguments]
    return ["***" if index and hidden[index - 1] == "--api-key" else word for index, word in enumerate(hidden)]


def load_name(load: Load) -> str:
    """Name a load as its table row."""
    return f"{load} clients" if isinstance(load, ClosedLoop) else f"{load}"


def number(value: float | None, digits: int = 0) -> str:
    """Format a figure that may be unknown."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def milliseconds(value_s: float | None) -> str:
    """Format seconds as milliseconds, with as many digits as mean something."""
    if value_s is None:
        return MISSING
    return number(1e3 * value_s, 0 if value_s >= 1 else 1 if value_s >= 0.1 else 2)


def _share(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part / whole:.0%}"


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None, pad_edge=False)
    for title in others:
        table.add_column(title, justify="right")
    return table


def _row_json(row: Row) -> dict[str, object]:
    load = {"kind": "closed" if isinstance(row.load, ClosedLoop) else "open", **dataclasses.asdict(row.load)}
    return {
        "server": row.server_index,
        "round": row.round_index,
        "load": load,
        **dataclasses.asdict(row.summary),
        "failures": dict(row.failures),
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
