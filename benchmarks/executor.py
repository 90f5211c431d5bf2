"""The executor alone against the least loop over the same model, in one run: `python -m benchmarks.executor`.

Closed loop, prompts of random tokens, a fixed number of tokens out. At each concurrency the loop and every kind of
sampling take turns for a few rounds; what counts is the median of the ratios of a round, for machines drift.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.bare_loop import BLOCK_SIZE, BareLoop
from benchmarks.closed_loop import Kind, Prompts, closed_loop, token_prompts
from engines import EngineConfig, EngineFolder, Guide, GuideKind, SamplingParams, load_executor
from llm_server import paths
from llm_server.pull import pull
from llm_server.sources.catalog import DEFAULT_MODEL

Rates = dict[str, list[float]]

SCHEMA = {
    "type": "object",
    "properties": {"places": {"type": "array", "items": {"type": "string", "minLength": 40}, "minItems": 100}},
    "required": ["places"],
}


KINDS: dict[str, Kind] = {
    "greedy": Kind(SamplingParams(temperature=0.0)),
    "temperature": Kind(SamplingParams(seed=1)),
    "top_p": Kind(SamplingParams(top_p=0.95, seed=1)),
    "penalties": Kind(
        SamplingParams(temperature=0.0, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.5, logprobs=5)
    ),
    "schema": Kind(SamplingParams(temperature=0.0), Guide(GuideKind.JSON_SCHEMA, json.dumps(SCHEMA))),
}
BARE = "bare loop"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="engine folder; by default the default model's")
    parser.add_argument("--concurrency", default="1,4,16,32")
    parser.add_argument("--kinds", default="greedy,temperature,top_p", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--budget", type=int, default=512, help="tokens per step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


class Bench:
    """Both sides, loaded once."""

    def __init__(self, args: argparse.Namespace, levels: Sequence[int]) -> None:
        folder = EngineFolder.load(args.engine or pull(DEFAULT_MODEL, paths.home()))
        blocks_per_sequence = -(-(args.prompt + args.output) // BLOCK_SIZE) + 1
        self.args = args
        self.bare = BareLoop(folder.model_path, max(levels) * blocks_per_sequence)
        config = EngineConfig(max_batch_size=max(levels), max_num_tokens=args.budget, kv_cache_gib=1.0)
        self.executor = load_executor(folder, config)

    def prompts(self, count: int, seed: int) -> Prompts:
        """Return prompts that no earlier call gave, so that nothing is found in the cache."""
        return token_prompts(count, self.args.prompt, seed)

    def run_bare(self, prompts: Prompts, concurrency: int) -> float:
        """Return the bare loop's tokens per second."""
        start = time.perf_counter()
        return self.bare.run(prompts, self.args.output, concurrency, self.args.budget) / (time.perf_counter() - start)

    async def run_executor(self, prompts: Prompts, kind: str, concurrency: int) -> float:
        """Return the executor's tokens per second."""
        return await closed_loop(self.executor, prompts, KINDS[kind], self.args.output, concurrency)


async def measure(bench: Bench, concurrency: int, kinds: Sequence[str]) -> Rates:
    """Let both sides take turns; return tokens per second, one figure a round."""
    args = bench.args
    count = 5 if concurrency == 1 else 3 * concurrency
    rates: Rates = {name: [] for name in (BARE, *kinds)}
    for round_number in range(args.rounds):
        seed = 1000 * concurrency + 10 * round_number
        rates[BARE].append(bench.run_bare(bench.prompts(count, seed), concurrency))
        for offset, kind in enumerate(kinds, start=1):
            rates[kind].append(await bench.run_executor(bench.prompts(count, seed + offset), kind, concurrency))
    return rates


def ratio(rates: Rates, kind: str) -> float:
    """Return the median over the rounds of a kind's rate over the bare loop's."""
    return statistics.median(mine / bare for mine, bare in zip(rates[kind], rates[BARE], strict=True))


async def bench_all(args: argparse.Namespace) -> dict[int, Rates]:
    """Run every concurrency, smallest first."""
    levels = [int(level) for level in args.concurrency.split(",")]
    bench = Bench(args, levels)
    await bench.executor.start()
    await bench.run_executor(bench.prompts(2, 1), "greedy", 2)
    bench.run_bare(bench.prompts(2, 2), 1)
    for kind in args.kinds.split(","):
        if (guide := KINDS[kind].guide) is not None:
            await bench.executor.compile(guide)
    results = {level: await measure(bench, level, args.kinds.split(",")) for level in levels}
    await bench.executor.shutdown()
    return results


def report(results: dict[int, Rates]) -> Table:
    """Lay out medians of tokens per second, and ratios to the bare loop."""
    kinds = [name for name in next(iter(results.values())) if name != BARE]
    table = Table("concurrency", BARE, *kinds, title="generated tokens/s (ratio to the bare loop)")
    for level, rates in results.items():
        cells = [f"{statistics.median(rates[kind]):.0f} ({ratio(rates, kind):.3f})" for kind in kinds]
        table.add_row(str(level), f"{statistics.median(rates[BARE]):.0f}", *cells)
    return table


def main() -> None:
    """Measure, print a table, write JSON if asked."""
    args = parse_arguments()
    results = asyncio.run(bench_all(args))
    Console().print(report(results))
    if args.json:
        args.json.write_text(json.dumps({"arguments": vars(args), "tokens_per_s": results}, default=str, indent=2))


if __name__ == "__main__":
    main()
