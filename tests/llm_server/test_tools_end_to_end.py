"""Tool calls and reasoning of the past with the real default model, asked by the openai client over real sockets."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest

from engines.config import EngineConfig
from engines.progress import silent
from llm_server.config import ModelConfig
from llm_server.loading import load_model
from tests.llm_server.sockets import serving_models

NAME = "smollm2-135m-instruct"
T = TypeVar("T")
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Lima"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
FORCED: Any = {"type": "function", "function": {"name": "weather"}}
QUESTION: Any = {"role": "user", "content": "What is the weather in Oslo?"}


@pytest.fixture(scope="module")
def base_url(default_engine: Path) -> Iterator[str]:
    config = ModelConfig(generic_tools=True, executor=EngineConfig(kv_cache_gib=0.25, max_batch_size=8))
    with ThreadPoolExecutor(2) as pool:
        model = load_model(config, default_engine.parent.parent, pool, silent)
        with serving_models(model) as address:
            yield f"http://127.0.0.1:{address.port}/v1"


def talk(base_url: str, conversation: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
    async def run() -> T:
        async with openai.AsyncOpenAI(api_key="-", base_url=base_url, max_retries=0) as client:
            return await conversation(client)

    return asyncio.run(run())


async def both_ways(client: openai.AsyncOpenAI, messages: list[Any], **fields: Any) -> tuple[Any, Any]:
    """The same answer whole, and its stream as the openai client itself adds it up."""
    asked: Any = {"model": NAME, "messages": messages, "temperature": 0, "max_tokens": 48, **fields}
    whole = await client.chat.completions.create(**asked)
    async with client.chat.completions.stream(**asked) as stream:
        streamed = await stream.get_final_completion()
    return whole.choices[0], streamed.choices[0]


def gist(choice: Any) -> tuple[str, list[tuple[str, str]], str]:
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return choice.message.content or "", calls, choice.finish_reason


def test_a_forced_call_and_the_answer_to_its_result(base_url: str) -> None:
    async def conversation(client: openai.AsyncOpenAI) -> list[tuple[Any, Any]]:
        asked = await both_ways(client, [QUESTION], tools=[TOOL], tool_choice=FORCED)
        message = asked[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"sky": "rain"}'}
        history = [QUESTION, message.model_dump(exclude_none=True), result]
        return [asked, await both_ways(client, history, tools=[TOOL], tool_choice="auto")]

    (call, streamed_call), (answer, streamed_answer) = talk(base_url, conversation)
    assert gist(call) == gist(streamed_call)
    content, [(name, arguments)], finish = gist(call)
    assert (content, name, finish) == ("", "weather", "tool_calls")
    assert json.loads(arguments)["city"] in ("Oslo", "Lima")
    assert gist(answer) == gist(streamed_answer)
    assert answer.message.content or answer.message.tool_calls


def test_a_chat_with_reasoning_in_its_history(base_url: str) -> None:
    history = [QUESTION, {"role": "assistant", "content": "Rain.", "reasoning_content": "Oslo is wet."}]
    question = {"role": "user", "content": "And in Lima?"}
    whole, streamed = talk(base_url, lambda client: both_ways(client, [*history, question]))
    assert gist(whole) == gist(streamed)
    assert whole.message.content
