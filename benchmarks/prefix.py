"""What prefix reuse is worth: `python -m benchmarks.prefix --base-url http://127.0.0.1:8000/v1`.

Each round asks two questions about a long text that no round before had: the first is answered cold, the second finds
the text in the cache. Then the second is asked once more under a cache salt of its own, so cold, to see that the cache
changes neither its text nor a bit of its log-probabilities.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.client import Client, open_session
from benchmarks.prompts import random_prompts

MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Reply:
    """One streamed answer."""

    ttft_s: float
    content: list[tuple[str, float]]
    """Tokens with their log-probabilities."""
    num_prompt_tokens: int
    num_cached_tokens: int


async def ask(session: aiohttp.ClientSession, url: str, model: str, text: str, salt: str | None) -> Reply:
    """Send one chat and time its first event with text."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({} if salt is None else {"cache_salt": salt}),
    }
    content: list[tuple[str, float]] = []
    usage: dict[str, Any] = {}
    ttft_s = 0.0
    start = time.perf_counter()
    async with session.post(f"{url}/chat/completions", data=json.dumps(body)) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    ttft_s = ttft_s or time.perf_counter() - start
                tokens = (choice.get("logprobs") or {}).get("content") or ()
                content += [(token["token"], token["logprob"]) for token in tokens]
    details = usage.get("prompt_tokens_details") or {}
    return Reply(ttft_s, content, usage["prompt_tokens"], details.get("cached_tokens", 0))


async def measure(args: argparse.Namespace) -> bool:
    """Run the rounds and print the figures; return whether warm answers equalled cold ones."""
    texts = random_prompts(args.words, args.seed)
    cold_s, warm_s, equal = [], [], []
    async with open_session(args.api_key, timeout_s=600) as session:
        model = (await Client(session, args.base_url).describe(args.model)).model
        await ask(session, args.base_url, model, "Warm up.", None)
        for number in range(args.rounds):
            text = str(next(texts).messages[0]["content"])
            first = await ask(session, args.base_url, model, f"{text}\n\nHow does it begin?", None)
            second = await ask(session, args.base_url, model, f"{text}\n\nWhat is it about?", None)
            again = await ask(session, args.base_url, model, f"{text}\n\nWhat is it about?", f"{args.seed} {number}")
            cold_s.append(first.ttft_s)
            warm_s.append(second.ttft_s)
            equal.append(second.content == again.content and not again.num_cached_tokens)
            print(
                f"{first.num_prompt_tokens} prompt tokens, {second.num_cached_tokens} cached: TTFT cold "
                f"{first.ttft_s * 1e3:.0f} ms, warm {second.ttft_s * 1e3:.0f} ms, warm equals cold: {equal[-1]}"
            )
    ratios = [warm / cold for warm, cold in zip(warm_s, cold_s, strict=True)]
    print(f"median TTFT warm / cold: {statistics.median(ratios):.3f} (1 / {1 / statistics.median(ratios):.1f})")
    return all(equal)


def main() -> None:
    """Measure; exit with 1 if the cache changed an answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="by default the first the server lists")
    parser.add_argument("--api-key")
    parser.add_argument("--words", type=int, default=960, help="length of the shared text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    sys.exit(0 if asyncio.run(measure(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
