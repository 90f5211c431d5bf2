"""Two busy models in one process against one of them alone: `python -m benchmarks.two_models`.

Both are the default model, each with an executor of its own, over the same cores. In each round one works alone, then
both at once; what counts is the median over the rounds of the rate of both together over that of the one.
"""

import argparse
import asyncio
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.closed_loop import Kind, closed_loop, token_prompts
from engines import EngineConfig, EngineFolder, Executor, SamplingParams, load_executor
from llm_server import paths
from llm_server.pull import pull
from llm_server.sources.catalog import DEFAULT_MODEL

GREEDY = Kind(SamplingParams(temperature=0.0))
Rates = list[tuple[float, float, float]]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="1,8", help="clients of each model")
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-threads", type=int, help="threads of each model; by default all cores")
    return parser.parse_args()


async def measure(executors: Sequence[Executor], concurrency: int, args: argparse.Namespace) -> Rates:
    """Return tokens per second of the first one alone, and of each beside the other, for each round."""
    num_prompts = max(3 * concurrency, 4)

    async def run(executor: Executor, seed: int) -> float:
        prompts = token_prompts(num_prompts, args.prompt, 1000 * concurrency + seed)
        return await closed_loop(executor, prompts, GREEDY, args.output, concurrency)

    rates: Rates = []
    for seed in range(0, 2 * args.rounds, 2):
        alone = await run(executors[0], seed)
        first, second = await asyncio.gather(*(run(executor, seed + 1) for executor in executors))
        rates.append((alone, first, second))
    return rates


async def bench_all(args: argparse.Namespace) -> dict[int, Rates]:
    """Load both, and run every concurrency."""
    folder = EngineFolder.load(pull(DEFAULT_MODEL, paths.home()))
    levels = [int(level) for level in args.concurrency.split(",")]
    config = EngineConfig(max_batch_size=max(levels), kv_cache_gib=1.0, num_threads=args.num_threads)
    executors = [load_executor(folder, config) for _ in range(2)]
    for executor in executors:
        await executor.start()
        await closed_loop(executor, token_prompts(2, args.prompt, 1), GREEDY, args.output, 2)
    results = {level: await measure(executors, level, args) for level in levels}
    for executor in executors:
        await executor.shutdown()
    return results


def report(results: dict[int, Rates]) -> Table:
    """Lay out medians, and the ratio of both together to one alone."""
    table = Table("clients of each", "alone", "first of two", "second of two", "both / alone", title="tokens/s")
    for level, rates in results.items():
        ratio = statistics.median((first + second) / alone for alone, first, second in rates)
        medians = (f"{statistics.median(column):.0f}" for column in zip(*rates, strict=True))
        table.add_row(str(level), *medians, f"{ratio:.3f}")
    return table


def main() -> None:
    """Measure and print a table."""
    Console().print(report(asyncio.run(bench_all(parse_arguments()))))


if __name__ == "__main__":
    main()
