import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from llm_server import __version__
from llm_server.lifecycle import Lifecycle
from tests.doubles import INFO, ScriptedExecutor
from tests.llm_server.serving import MODEL, ask, chat_body, client_for, served
from tests.llm_server.sockets import listening


def get(path: str) -> httpx.Response:
    return ask(ScriptedExecutor(), lambda http: http.get(path))


def test_models_are_listed_and_found_by_names_with_slashes() -> None:
    card = {
        "id": MODEL,
        "object": "model",
        "created": 1700000000,
        "owned_by": "llm-server",
        "root": MODEL,
        "parent": None,
        "max_model_len": ScriptedExecutor().info.max_sequence_length,
    }
    assert get("/v1/models").json() == {"object": "list", "data": [card]}
    assert get(f"/v1/models/{MODEL}").json() == card
    assert get("/v1/models/no-such-vessel").status_code == 404
    assert get("/v1/models/no-such-vessel").json()["error"]["code"] == "model_not_found"


def test_several_models_are_served_side_by_side() -> None:
    async def talk() -> list[str]:
        executors = ScriptedExecutor(), ScriptedExecutor()
        async with client_for(served(executors[0], "one"), served(executors[1], "two")) as http:
            await http.post("/v1/chat/completions", json=chat_body() | {"model": "two"})
            assert [len(executor.requests) for executor in executors] == [0, 1]
            return [card["id"] for card in (await http.get("/v1/models")).json()["data"]]

    assert asyncio.run(talk()) == ["one", "two"]


def test_an_adapter_is_a_model_of_its_own_name_over_the_executor_of_its_base() -> None:
    executor = ScriptedExecutor(info=replace(INFO, adapters=("sql", "poems")))

    async def talk() -> list[tuple[str, str, str | None]]:
        async with client_for(*served(executor, "llama").with_adapters()) as http:
            for name in ("sql", "llama", "poems"):
                answer = (await http.post("/v1/chat/completions", json=chat_body() | {"model": name})).json()
                assert answer["model"] == name
            cards = (await http.get("/v1/models")).json()["data"]
            return [(card["id"], card["root"], card["parent"]) for card in cards]

    assert asyncio.run(talk()) == [
        ("llama", "llama", None),
        ("sql", "llama", "llama"),
        ("poems", "llama", "llama"),
    ]
    assert [request.adapter for request in executor.requests] == ["sql", None, "poems"]


def test_the_version_is_told() -> None:
    assert get("/version").json() == {"version": __version__}


def test_a_dead_engine_fails_both_health_checks() -> None:
    executor = ScriptedExecutor()

    async def talk(http: httpx.AsyncClient) -> list[Any]:
        before = [(await http.get(path)).status_code for path in ("/health", "/health/ready")]
        await executor.shutdown()
        after = [(await http.get(path)).status_code for path in ("/health", "/health/ready")]
        return [before, after, (await http.get("/health")).json()]

    assert ask(executor, talk) == [[200, 200], [503, 503], {"status": "dead", "models": [MODEL]}]


def test_a_draining_server_is_alive_but_not_ready_and_takes_nothing_new() -> None:
    async def talk() -> list[int]:
        lifecycle = Lifecycle()
        async with client_for(served(ScriptedExecutor()), lifecycle=lifecycle) as http:
            assert await lifecycle.drain(timeout_s=0)
            answers = [await http.get(path) for path in ("/health", "/health/ready", "/version", "/v1/models")]
            return [answer.status_code for answer in answers]

    assert asyncio.run(talk()) == [200, 503, 200, 503]


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/version", "/v1/models", f"/v1/models/{MODEL}"])
def test_head_is_answered_as_get_is_without_a_body(path: str) -> None:
    with listening(ScriptedExecutor()) as address, httpx.Client(base_url=f"http://127.0.0.1:{address.port}") as http:
        head, whole = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
