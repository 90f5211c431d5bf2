"""A server over a scripted executor, in process, for the tests of routes and services."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from engines.contract import Executor
from llm_server.app import create_app
from llm_server.config import ServerConfig
from llm_server.lifecycle import Lifecycle
from llm_server.registry import HiddenTokens, ModelRegistry, ServedModel
from stylers.generic import GenericStyler
from tests.doubles import CHAT_TEMPLATE, END_ID, ScriptedExecutor, byte_tokenizer

MODEL = "house/tiny"
MARKUP = len("?user\n?\n?assistant\n")  # tokens that the template puts around one message; ? is a special token
T = TypeVar("T")


def served(executor: Executor, name: str = MODEL, **fields: Any) -> ServedModel:
    tokenizer = byte_tokenizer()
    model: dict[str, Any] = {
        "styler": GenericStyler("generic").for_model(chat_template=CHAT_TEMPLATE),
        "end_token_ids": frozenset((END_ID,)),
        "hidden_tokens": HiddenTokens(tokenizer.special_tokens),
        "created": 1700000000,
    }
    return ServedModel(name, tokenizer=tokenizer, executor=executor, **(model | fields))


@asynccontextmanager
async def client_for(
    *models: ServedModel, config: ServerConfig | None = None, lifecycle: Lifecycle | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(config or ServerConfig(), ModelRegistry(models), lifecycle)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield http


def ask(executor: ScriptedExecutor, talk: Callable[[httpx.AsyncClient], Awaitable[T]], **fields: Any) -> T:
    """Serve `executor` for the time of one talk with it."""

    async def run() -> T:
        async with client_for(served(executor, **fields)) as http:
            return await talk(http)

    return asyncio.run(run())


def chat_body(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def post_chat(executor: ScriptedExecutor | None = None, **fields: Any) -> httpx.Response:
    """The answer to one chat."""
    return ask(executor or ScriptedExecutor(), lambda http: http.post("/v1/chat/completions", json=chat_body(**fields)))


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, whose form is checked on the way."""
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    assert all(block.startswith("data: ") for block in blocks)
    *events, done = [block.removeprefix("data: ") for block in blocks]
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
