"""Many clients, clients that leave, health, and a server that is told to stop."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from llm_server import __version__
from tests.llm_server.conformance.client import MODEL, URL, Client, body_of
from tests.llm_server.conformance.engines import CONTEXT_LENGTH, MAX_BATCH_SIZE, MAX_WAITING, Serve
from tests.llm_server.serving import text_of
from tests.llm_server.sockets import PATIENCE_S

LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True}


def becomes_idle(server: Client) -> bool:
    """Whether everything is free again within a few seconds: steps go on while nobody reads."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        stats = server.model.executor.stats()
        if not (stats.num_running or stats.num_waiting or stats.num_blocks_used):
            return stats.num_blocks_free + stats.num_blocks_cached == server.model.executor.info.num_blocks
        server.text(max_tokens=1)  # a step, which publishes fresh numbers
    return False


def test_clients_at_once_get_what_each_gets_alone(server: Client) -> None:
    questions = [f"Name {number} things one finds on a pier." for number in range(MAX_BATCH_SIZE + MAX_WAITING)]
    alone = [server.text(question) for question in questions]
    with ThreadPoolExecutor(len(questions)) as pool:
        whole = list(pool.map(server.text, questions))
        streamed = list(pool.map(lambda question: text_of(server.stream(question)), questions))
    assert whole == streamed == alone


def test_under_too_many_clients_each_is_answered_or_sent_away(server: Client) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda index: server.post(f"{index}", n=3, temperature=1), range(12)))
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert any(answer.status_code == 200 for answer in answers)
    assert becomes_idle(server)


@pytest.mark.parametrize("num_choices", [1, 3])
def test_a_client_that_leaves_a_stream_frees_its_slots(server: Client, num_choices: int) -> None:
    body = body_of(n=num_choices, temperature=1, stream=True, **LONG)
    for _ in range(MAX_BATCH_SIZE + MAX_WAITING):
        with server.http.stream("POST", URL, json=body) as response:
            assert next(response.iter_lines()).startswith("data: ")
    assert becomes_idle(server)


def test_a_client_that_leaves_before_its_answer_frees_its_slot(server: Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        server.http.post(URL, json=body_of(**LONG), timeout=httpx.Timeout(PATIENCE_S, read=0.005))
    assert becomes_idle(server)


def test_the_model_is_listed(server: Client) -> None:
    [card] = server.http.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == (MODEL, "model", CONTEXT_LENGTH)
    assert server.http.get(f"/v1/models/{MODEL}").json() == card
    assert server.http.get("/v1/models/other").status_code == 404


def test_health_and_version_are_told(server: Client) -> None:
    for path in ("/health", "/health/ready"):
        assert (server.http.get(path).status_code, server.http.get(path).json()) == (200, {"status": "ok"})
    assert server.http.get("/version").json() == {"version": __version__}


def test_a_drain_lets_running_answers_finish(serve: Serve) -> None:
    with serve() as server:
        with server.http.stream("POST", URL, json=body_of(stream=True, **LONG)) as response:
            lines = response.iter_lines()
            assert "assistant" in next(lines)
            server.address.begin_drain()
            *events, done = [line.removeprefix("data: ") for line in lines if line]
        assert done == "[DONE]"
        assert json.loads(events[-1])["choices"][0]["finish_reason"] == "length"
