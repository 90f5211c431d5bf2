"""The real default model behind the real server, asked by the openai client over real sockets."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest

from engines.config import EngineConfig
from engines.contract import Executor
from engines.progress import silent
from llm_server.config import ModelConfig
from llm_server.loading import load_model
from llm_server.registry import ServedModel
from tests.llm_server.sockets import serving_models

NAME = "smollm2-135m-instruct"
T = TypeVar("T")
Talk = Callable[[openai.AsyncOpenAI], Awaitable[T]]


@pytest.fixture(scope="module")
def model(default_engine: Path) -> Iterator[ServedModel]:
    config = ModelConfig(executor=EngineConfig(kv_cache_gib=0.25, max_batch_size=8))
    with ThreadPoolExecutor(2) as pool:
        yield load_model(config, default_engine.parent.parent, pool, silent)


@pytest.fixture(scope="module")
def base_url(model: ServedModel) -> Iterator[str]:
    with serving_models(model) as address:
        yield f"http://127.0.0.1:{address.port}/v1"


@pytest.fixture
def executor(model: ServedModel) -> Executor:
    return model.executor


def talk(base_url: str, conversation: Talk[T]) -> T:
    async def run() -> T:
        async with openai.AsyncOpenAI(api_key="-", base_url=base_url, max_retries=0) as client:
            return await conversation(client)

    return asyncio.run(run())


async def whole(client: openai.AsyncOpenAI, text: str, **fields: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    return await client.chat.completions.create(model=NAME, messages=messages, **({"max_tokens": 12} | fields))


async def streamed(client: openai.AsyncOpenAI, text: str, **fields: Any) -> str:
    stream = await whole(client, text, stream=True, **fields)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


def test_twenty_clients_at_once_get_what_each_gets_alone(base_url: str) -> None:
    questions = [f"Name {number} things one finds on a pier." for number in range(20)]

    async def conversation(client: openai.AsyncOpenAI) -> tuple[list[str], list[str]]:
        alone = [(await whole(client, text, temperature=0)).choices[0].message.content for text in questions]
        together = await asyncio.gather(*(streamed(client, text, temperature=0) for text in questions))
        return alone, together

    alone, together = talk(base_url, conversation)
    assert together == alone
    assert all(alone)


def test_a_seed_repeats_its_choices_and_they_differ(base_url: str) -> None:
    async def conversation(client: openai.AsyncOpenAI) -> list[list[str]]:
        asked = [await whole(client, "Invent a boat's name.", n=2, seed=31, temperature=1.2) for _ in range(2)]
        return [[choice.message.content for choice in completion.choices] for completion in asked]

    first, second = talk(base_url, conversation)
    assert first == second
    assert first[0] != first[1]


def test_clients_that_leave_at_any_time_leave_nothing_behind(base_url: str, executor: Executor) -> None:
    async def leave(client: openai.AsyncOpenAI, chance: random.Random) -> None:
        ask = streamed if chance.random() < 0.5 else whole
        words = "harbour " * chance.randint(1, 200)
        with suppress(TimeoutError):
            await asyncio.wait_for(ask(client, words, max_tokens=chance.randint(1, 40)), chance.random())

    async def conversation(client: openai.AsyncOpenAI) -> None:
        chance = random.Random(7)
        await asyncio.gather(*(leave(client, chance) for _ in range(60)))
        for _ in range(50):  # the server may learn of the last departures a few steps later
            assert (await whole(client, "hi", max_tokens=1)).usage.completion_tokens == 1
            if not executor.stats().num_blocks_used:
                return

    talk(base_url, conversation)
    stats = executor.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_used) == (0, 0, 0)
    assert stats.num_blocks_free + stats.num_blocks_cached == executor.info.num_blocks


def test_a_second_request_with_the_same_beginning_comes_out_of_the_cache(base_url: str) -> None:
    text = "Log of the pilot boat. " * 40

    async def conversation(client: openai.AsyncOpenAI) -> list[Any]:
        return [await whole(client, text, temperature=0) for _ in range(2)]

    cold, warm = talk(base_url, conversation)
    assert cold.choices[0].message.content == warm.choices[0].message.content
    assert cold.usage.prompt_tokens_details.cached_tokens < warm.usage.prompt_tokens_details.cached_tokens


def test_a_prompt_over_the_context_is_a_clear_error(base_url: str) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192 tokens") as caught:
        talk(base_url, lambda client: whole(client, "harbour " * 9000))
    assert caught.value.code == "context_length_exceeded"


def test_a_schema_forces_an_answer_of_its_form(base_url: str) -> None:
    schema = {"type": "object", "properties": {"sea": {"const": "naïve 🦜"}}, "required": ["sea"]}
    wrapper = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema | {"additionalProperties": False}}}
    text = talk(base_url, lambda client: streamed(client, "?", response_format=wrapper, max_tokens=64))
    assert "naïve 🦜" in text
