"""`python -m benchmarks.serve`: load an OpenAI-compatible server with streamed chats and print what a client sees.

One server: one row per load. Two (`--compare A B`): alternating rounds with the same prompts, and the ratio of medians.
"""

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.client import ServerError
from benchmarks.compare import compute_ratios, print_ratios
from benchmarks.load import ClosedLoop, Load, OpenLoop
from benchmarks.measure import Plan, Workload, measure
from benchmarks.prompts import PromptError, RequestOptions
from benchmarks.report import Row, print_rows, write_json

DEFAULT_DATA = Path(__file__).with_name("data") / "prompts.jsonl"
DEFAULT_CONCURRENCY = "16"
TABLE_WIDTH = 120  # where the output is no terminal

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(highlight=False, width=None if sys.stdout.isatty() else TABLE_WIDTH)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


@app.command()
def main(
    base_url: Annotated[str, typer.Option(help="The server's /v1.")] = "http://127.0.0.1:8000/v1",
    compare: Annotated[tuple[str, str] | None, typer.Option(help="Two servers' /v1, in place of --base-url.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per server and load of --compare.")] = 5,
    model: Annotated[str | None, typer.Option(help="Model name; without it the first one the server lists.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.")] = None,
    concurrency: Annotated[str | None, typer.Option(help="Clients of a closed loop, e.g. 1,4,16,32. [16]")] = None,
    rate: Annotated[str | None, typer.Option(help="Poisson arrivals per second, e.g. 2,4; no closed loop.")] = None,
    num_requests: Annotated[int | None, typer.Option(min=1, help="Per load. [4 a client or 30 s; >= 32]")] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Requests sent first and not measured.")] = 4,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Bound of every answer. [the prompt's, or 128]")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Ask for answers of full length.")] = False,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy: the same work for every server.")] = 0.0,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Left to the server unless given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of prompts and arrivals [0]; if given, of sampling too.")] = None,
    data: Annotated[Path | None, typer.Option(help="Prompts, one JSON object per line. [data/prompts.jsonl]")] = None,
    random_tokens: Annotated[int | None, typer.Option(min=1, help="Random prompts of about so many tokens.")] = None,
    prompt_words: Annotated[int | None, typer.Option(min=1, help="Random prompts of so many words.")] = None,
    shared_prefix_words: Annotated[int, typer.Option(min=0, help="Random words that begin all prompts.")] = 0,
    timeout_s: Annotated[float, typer.Option(min=0.001, help="Longest time of a request.")] = 600.0,
    json: Annotated[Path | None, typer.Option(help="Write all figures here.")] = None,
) -> None:
    """Measure an OpenAI-compatible server from the client's side. Exit code 1 if a request failed, 2 on a mistake."""
    if sum(source is not None for source in (data, random_tokens, prompt_words)) > 1:
        raise typer.BadParameter("--data, --random-tokens and --prompt-words exclude each other")
    if random_tokens is None and prompt_words is None:
        data = data or DEFAULT_DATA
    options = RequestOptions(max_tokens, ignore_eos, temperature, top_p, seed)
    workload = Workload(data, random_tokens, prompt_words, shared_prefix_words, seed or 0, options)
    loads = parse_loads(concurrency, rate, workload.seed)
    plan = Plan(compare or (base_url,), model, loads, num_requests, warmup, rounds if compare else 1)
    try:
        rows = asyncio.run(measure(plan, workload, tell, api_key=api_key, timeout_s=timeout_s))
    except (ServerError, PromptError) as exc:
        tell(f"benchmarks.serve: {exc}")
        raise typer.Exit(2) from exc
    show(plan, workload, rows, json)
    if any(row.summary.num_failed for row in rows):
        raise typer.Exit(1)


def parse_loads(concurrency: str | None, rate: str | None, seed: int) -> list[Load]:
    """Read `--concurrency` or `--rate`, lists of numbers with commas. Raises typer.BadParameter."""
    if concurrency is not None and rate is not None:
        raise typer.BadParameter("--concurrency and --rate exclude each other")
    try:
        loads: list[Load] = (
            [OpenLoop(float(word), seed) for word in rate.split(",")]
            if rate is not None
            else [ClosedLoop(int(word)) for word in (concurrency or DEFAULT_CONCURRENCY).split(",")]
        )
    except ValueError as exc:
        raise typer.BadParameter(f"a list of numbers with commas is wanted: {exc}") from exc
    if not all(0 < (load.rate if isinstance(load, OpenLoop) else load.concurrency) < float("inf") for load in loads):
        raise typer.BadParameter("--concurrency and --rate take positive numbers")
    return loads


def tell(message: str) -> None:
    """Print what is not a result to stderr."""
    errors.print(message, markup=False)


def show(plan: Plan, workload: Workload, rows: Sequence[Row], json_path: Path | None) -> None:
    """Print the tables and write the JSON file if one is wanted."""
    servers = {row.server_index: row.server for row in rows}
    extra: dict[str, object] = {
        "servers": [dataclasses.asdict(servers[index]) for index in sorted(servers)],
        "workload": dataclasses.asdict(workload) | {"data": str(workload.data) if workload.data else None},
        "num_warmup": plan.num_warmup,
    }
    if len(plan.base_urls) == 1:
        print_rows(console, rows)
    else:
        first, second = ([row for row in rows if row.server_index == index] for index in (0, 1))
        print_ratios(console, first, second)
        extra["ratios"] = [dataclasses.asdict(ratio) for ratio in compute_ratios(first, second)]
    if json_path is not None:
        write_json(json_path, rows, extra)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks.serve")
