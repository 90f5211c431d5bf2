"""The run itself: find the servers, make the prompts, warm up, and measure each load in turn."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.client import Client, ServerError, ServerInfo, open_session
from benchmarks.load import Load, run_round
from benchmarks.prompts import (
    Prompt,
    RequestOptions,
    cycle_prompts,
    encode_body,
    random_prompts,
    random_text,
    read_prompts,
    share_prefix,
)
from benchmarks.report import Row, failure_examples, load_name
from benchmarks.sse import Failure
from benchmarks.stats import summarise

PROBE_WORDS = (64, 192)


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked. Of `data`, `random_tokens` and `prompt_words` one is given."""

    data: Path | None
    random_tokens: int | None
    prompt_words: int | None
    shared_prefix_words: int
    seed: int
    options: RequestOptions


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: every load on every server, in `rounds` alternating rounds."""

    base_urls: Sequence[str]
    model: str | None
    loads: Sequence[Load]
    num_requests: int | None
    num_warmup: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test."""

    index: int
    client: Client
    info: ServerInfo


async def measure(
    plan: Plan, workload: Workload, tell: Callable[[str], None], *, api_key: str | None, timeout_s: float
) -> list[Row]:
    """Run the plan and return its rows in the order they were measured; `tell` hears what is done now.

    Raises ServerError or PromptError.
    """
    async with open_session(api_key, timeout_s) as session:
        targets = [
            await find_target(session, index, base_url, plan.model) for index, base_url in enumerate(plan.base_urls)
        ]
        prompts = await open_prompts(workload, targets[0])
        warmup = list(itertools.islice(prompts, plan.num_warmup))
        for target in targets:
            await warm_up(target, warmup, workload.options)
        rows = []
        for load, index in itertools.product(plan.loads, range(plan.rounds)):
            asked = list(itertools.islice(prompts, plan.num_requests or load.default_num_requests))
            # A B, B A, A B: a drift of the machine's speed falls on both alike.
            for target in targets if index % 2 == 0 else targets[::-1]:
                tell(f"{target.info.base_url}: {load_name(load)}, round {index + 1} of {plan.rounds}")
                rows.append(await measure_round(target, asked, load, index, workload.options))
        return rows


async def find_target(session: aiohttp.ClientSession, index: int, base_url: str, model: str | None) -> Target:
    """Ask a server what it is. Raises ServerError."""
    client = Client(session, base_url)
    return Target(index, client, await client.describe(model))


async def open_prompts(workload: Workload, target: Target) -> Iterator[Prompt]:
    """Return the endless stream of prompts a workload asks for; `target` counts tokens if need be."""
    num_words = workload.prompt_words
    if workload.random_tokens is not None:
        num_words = await count_words(target, workload.random_tokens)
    if workload.data is not None:
        prompts = cycle_prompts(read_prompts(workload.data), workload.seed)
    else:
        assert num_words is not None, "a workload has one source of prompts"
        prompts = random_prompts(num_words, workload.seed)
    if workload.shared_prefix_words:
        prompts = share_prefix(prompts, workload.shared_prefix_words, workload.seed)
    return prompts


async def count_words(target: Target, num_tokens: int) -> int:
    """Find how many random words make a prompt of `num_tokens`, template included, by what two prompts cost.

    Raises ServerError.
    """
    few, many = PROBE_WORDS
    few_tokens, many_tokens = [await _prompt_tokens(target, num_words) for num_words in PROBE_WORDS]
    tokens_per_word = (many_tokens - few_tokens) / (many - few)
    if tokens_per_word <= 0:
        raise ServerError("longer prompts are not counted as more tokens; use --prompt-words")
    return max(1, round(few + (num_tokens - few_tokens) / tokens_per_word))


async def _prompt_tokens(target: Target, num_words: int) -> int:
    prompt = Prompt(({"role": "user", "content": random_text(num_words, random.Random("probe"))},))
    answer = await target.client.send(encode_body(prompt, target.info.model, RequestOptions(max_tokens=1), 0))
    if isinstance(answer, Failure):
        raise ServerError(f"{target.info.base_url}: {answer.kind}: {answer.message}")
    if answer.usage is None:
        raise ServerError("the server gives no usage to count a prompt's tokens by; use --prompt-words")
    return answer.usage.prompt_tokens


async def warm_up(target: Target, prompts: Sequence[Prompt], options: RequestOptions) -> None:
    """Send requests that are not measured. Raises ServerError if one fails, as all would."""
    for index, prompt in enumerate(prompts):
        answer = await target.client.send(encode_body(prompt, target.info.model, options, index))
        if isinstance(answer, Failure):
            raise ServerError(f"{target.info.base_url}: warm-up failed: {answer.kind}: {answer.message}")


async def measure_round(
    target: Target, prompts: Sequence[Prompt], load: Load, index: int, options: RequestOptions
) -> Row:
    """Send the prompts under one load and summarise the answers."""
    bodies = [encode_body(prompt, target.info.model, options, number) for number, prompt in enumerate(prompts)]
    measured = await run_round(target.client.send, bodies, load)
    return Row(target.info, target.index, load, index, summarise(measured), failure_examples(measured.results))
