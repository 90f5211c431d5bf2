"""What HTTP, text and SSE cost: `python -m benchmarks.http_share`.

Streams over HTTP from a server of its own, and the executor alone in this process, take turns: the same model,
prompts of the same length, the same number of tokens out. Client, server and executor share the machine.
"""

import argparse
import asyncio
import itertools
import os
import signal
import socket
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.table import Table

from benchmarks.client import Client, ServerError, open_session
from benchmarks.executor import Bench
from benchmarks.load import ClosedLoop, run_round
from benchmarks.prompts import RequestOptions, encode_body, random_prompts
from benchmarks.sse import Answer

READY_TIMEOUT_S = 60
TEMPLATE_TOKENS = 30  # around one message, in the default model's template


@asynccontextmanager
async def own_server() -> AsyncIterator[str]:
    """Run a server with the default model on a free port; yield its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = (sys.executable, "-m", "llm_server", "serve", "--port", str(port), "--log-level", "warning")
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, env=os.environ)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if server.returncode is None:
            server.send_signal(signal.SIGTERM)
            await server.wait()


async def wait_until_ready(client: Client) -> str:
    """Return the server's model once it answers."""
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            try:
                return (await client.describe(None)).model
            except ServerError:
                await asyncio.sleep(0.1)


async def compare(args: argparse.Namespace) -> Table:
    """Measure every concurrency in alternating rounds."""
    levels = [int(level) for level in args.concurrency.split(",")]
    bench = Bench(args, levels)
    await bench.executor.start()
    table = Table("concurrency", "executor", "HTTP", "ratio", "spread", title="generated tokens/s, streamed")
    async with own_server() as base_url, open_session(None, timeout_s=600) as session:
        client = Client(session, base_url)
        model = await wait_until_ready(client)
        texts = random_prompts(max(args.prompt - TEMPLATE_TOKENS, 1), seed=0)
        options = RequestOptions(max_tokens=args.output, ignore_eos=True)
        for level in levels:
            alone, over_http = [], []
            for number in range(args.rounds + 1):
                count = 3 * level
                prompts = bench.prompts(count, seed=10_000 * level + number)
                bodies = [encode_body(text, model, options, 0) for text in itertools.islice(texts, count)]
                alone.append(await bench.run_executor(prompts, "greedy", level))
                measured = await run_round(client.send, bodies, ClosedLoop(level))
                usages = [result.usage for result in measured.results if isinstance(result, Answer) and result.usage]
                assert len(usages) == count, "a request failed"
                over_http.append(sum(usage.completion_tokens for usage in usages) / measured.duration_s)
            table.add_row(str(level), *_row(alone[1:], over_http[1:]))  # the first round warms up
    await bench.executor.shutdown()
    return table


def _row(alone: list[float], over_http: list[float]) -> list[str]:
    ratios = [http / executor for http, executor in zip(over_http, alone, strict=True)]
    return [
        f"{statistics.median(alone):.0f}",
        f"{statistics.median(over_http):.0f}",
        f"{statistics.median(ratios):.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
    ]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="16,32")
    parser.add_argument("--prompt", type=int, default=128, help="tokens in, about")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--budget", type=int, default=512, help="tokens per step")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.engine = None
    Console().print(asyncio.run(compare(args)))


if __name__ == "__main__":
    main()
