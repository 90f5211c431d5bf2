"""What is refused, with which status, code and name; and that it costs nothing."""

from typing import Any

import pytest

from tests.llm_server.conformance.client import URL, Client, Json, body_of
from tests.llm_server.conformance.engines import CONTEXT_LENGTH, MAX_BATCH_SIZE, MAX_WAITING


def test_an_unknown_model_is_not_found(server: Client) -> None:
    error = server.refusal(status=404, model="no-such-vessel")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "no-such-vessel" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [({"text": "a" * 600}, "messages"), ({"text": "a" * 100, "max_tokens": 500}, "max_tokens")],
    ids=["prompt", "answer"],
)
def test_what_does_not_fit_the_context_is_refused(server: Client, stream: bool, fields: Json, param: str) -> None:
    error = server.refusal(**fields, stream=stream)
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert f"maximum context length is {CONTEXT_LENGTH} tokens" in error["message"]


BAD_FIELDS: list[tuple[Json, str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": "0"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"seed": 2**64}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 17}, "min_tokens"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": 1e6}, "repetition_penalty"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop_token_ids": [99999]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"stream": "yes"}, "stream"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=str)
def test_a_bad_field_is_refused_by_name(server: Client, fields: Json, param: str) -> None:
    error = server.refusal(**fields)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]


@pytest.mark.parametrize("fields", [{"best_of": 2}, {"use_beam_search": True}, {"audio": {"voice": "x"}}], ids=str)
def test_a_field_that_nobody_honours_is_refused_by_name(server: Client, fields: Json) -> None:
    error = server.refusal(**fields)
    assert (error["code"], error["param"]) == ("unsupported_parameter", next(iter(fields)))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "tiny", "x": NaN}', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(server: Client, body: bytes) -> None:
    response = server.http.post(URL, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_refusals_leave_the_engine_idle_and_answering(server: Client) -> None:
    before = server.text()
    for fields, _ in BAD_FIELDS:
        server.refusal(**fields)
    stats = server.model.executor.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert server.text() == before


def test_more_choices_than_there_ever_is_room_for_are_refused_by_name(server: Client) -> None:
    room = MAX_BATCH_SIZE + MAX_WAITING
    error = server.refusal(n=room + 1, temperature=1)
    assert (error["type"], error["param"]) == ("invalid_request_error", "n")
    assert len(server.ask(n=room, temperature=1)["choices"]) == room


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_times_out(server: Client, stream: bool) -> None:
    error = server.refusal(status=504, timeout_s=1e-6, max_tokens=400, ignore_eos=True, stream=stream)
    assert (error["type"], error["code"]) == ("server_error", "timed_out")
    assert server.ask(timeout_s=60.0, ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_the_routes_refuse_other_methods_and_other_paths(server: Client) -> None:
    answers: Any = [server.http.get(URL), server.http.post("/v1/no-such-route", json=body_of())]
    assert [answer.status_code for answer in answers] == [405, 404]
    assert all(answer.json()["error"]["type"] == "invalid_request_error" for answer in answers)
