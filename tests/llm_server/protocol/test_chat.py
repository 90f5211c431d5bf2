import asyncio
from typing import Any

import httpx
import pytest

from llm_server.config import ServerConfig
from tests.doubles import ScriptedExecutor
from tests.llm_server.serving import MARKUP, MODEL, ask, chat_body, client_for, post_chat, served

REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 2.5}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"temperature": "NaN"}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": 1.5}, "n"),
    ({"seed": 2**64}, "seed"),
    ({"stop": [str(n) for n in range(17)]}, "stop"),
    ({"stop": 7}, "stop"),
    ({"stop": "x" * 1025}, "stop[0]"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ({"logit_bias": {str(token_id): 0 for token_id in range(4097)}}, "logit_bias"),
    ({"bad_words": ["x" * 257]}, "bad_words[0]"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"bad_words": ["x" * 1025]}, "bad_words[0]"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"stream": "maybe"}, "stream"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"messages": "hi"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "captain", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 42}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ({"tools": {"name": "x"}}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": "{}"}}, "response_format"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_regex": "a", "guided_json": {}}, "response_format"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"functions": [{"name": "x"}]}, "functions"),
    ({"best_of": 2}, "best_of"),
    ({"model": 7}, "model"),
    ({"cache_salt": ""}, "cache_salt"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_field_is_refused_by_name(fields: dict[str, Any], param: str | None, stream: bool) -> None:
    executor = ScriptedExecutor()
    response = post_chat(executor, **({"stream": stream} | fields))
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["param"] == param
    assert executor.requests == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"logit_bias": {"x": 1}}, "logit_bias: 'x' is not a token id"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role is missing"),
        ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content must be a text or a list of parts"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_nothing_else(fields: dict[str, Any], message: str) -> None:
    assert post_chat(ScriptedExecutor(), **fields).json()["error"]["message"] == message


NEUTRAL: list[dict[str, Any]] = [
    {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "repetition_penalty": 1, "min_p": 0, "top_k": 0},
    {"stop": None}, {"stop": []}, {"stop": ""}, {"stop": ["", "\u2603never\u2603"]},
    {"stream_options": {}, "tools": [], "functions": [], "modalities": ["text"], "audio": None, "best_of": 1},
    {"store": False, "metadata": {"a": "b"}, "service_tier": "auto", "user": "x", "x_house_flag": {"deep": [1]}},
    {"response_format": {"type": "text"}, "logprobs": False, "top_logprobs": 0, "parallel_tool_calls": False},
    {"temperature": 1, "top_p": 1, "n": None, "seed": None, "max_tokens": None, "stream": None},
    {"tools": [{"type": "function", "function": {"name": "x"}}], "tool_choice": "none"},
]  # fmt: skip


@pytest.mark.parametrize("fields", NEUTRAL)
def test_fields_that_ask_for_nothing_are_fine(fields: dict[str, Any]) -> None:
    assert post_chat(**fields).json()["choices"][0]["message"]["content"] == "Hello!"


BROKEN = [
    b"",
    b"[]",
    b'"text"',
    b'{"model": "house/tiny", "messages": [',
    b'{"model": "house/tiny", "temperature": NaN, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"model": "house/tiny", "top_p": -Infinity, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"model": "house/tiny", "temperature": 1e999, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"model": "house/tiny", "messages": [{"role": "user", "content": "sail \\ud83d away"}]}',
    b'{"model": "house/tiny", "stop": ["\\udcf0"], "messages": [{"role": "user", "content": "hi"}]}',
    b'{"model": "house/tiny", "messages": [{"role": "user", "content": "\xff"}]}',
    b'{"model": "house/tiny", "messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    "{}".encode("utf-16"),
    b"[" * 100_000,
]


@pytest.mark.parametrize("raw", BROKEN, ids=range(len(BROKEN)))
def test_a_body_that_is_not_sound_json_is_refused(raw: bytes) -> None:
    response = ask(ScriptedExecutor(), lambda http: http.post("/v1/chat/completions", content=raw))
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_whole_surrogate_pair_is_a_character() -> None:
    executor = ScriptedExecutor()
    raw = b'{"model": "house/tiny", "messages": [{"role": "user", "content": "\\ud83e\\udd9c"}]}'
    assert ask(executor, lambda http: http.post("/v1/chat/completions", content=raw)).status_code == 200
    assert "🦜".encode() in bytes(i for i in executor.requests[0].prompt_token_ids if i < 256)


def test_a_prompt_over_the_context_is_refused_with_the_numbers() -> None:
    error = post_chat(messages=[{"role": "user", "content": "x" * 600}], max_tokens=4).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert all(
        number in error["message"]
        for number in ("512", f"{604 + MARKUP}", f"{600 + MARKUP} in the messages", "4 in the c")
    )
    error = post_chat(max_tokens=10**9).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")


def test_more_messages_than_the_context_has_tokens_are_refused_before_any_is_read() -> None:
    error = post_chat(messages=[{"role": "user", "content": ""}] * 512 + [{"role": "unread"}]).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "at least 513 in the messages" in error["message"]


@pytest.mark.parametrize("model", ["no-such-vessel", ""])
def test_an_unknown_model_is_a_404(model: str) -> None:
    response = post_chat(model=model)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert MODEL in response.json()["error"]["message"]


def test_what_a_client_sent_is_not_sent_back_whole() -> None:
    assert len(post_chat(model="x" * 100_000).text) < 5000
    assert len(post_chat(messages=[{"role": "x" * 100_000, "content": "hi"}]).text) < 5000


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_a_413_with_or_without_a_length(announced: bool) -> None:
    body = b" " * (2**20 + 1)

    async def chunks() -> Any:
        for begin in range(0, len(body), 2**16):
            yield body[begin : begin + 2**16]

    async def run() -> httpx.Response:
        async with client_for(served(ScriptedExecutor()), config=ServerConfig(max_body_mib=1)) as http:
            return await http.post("/v1/chat/completions", content=body if announced else chunks())

    response = asyncio.run(run())
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_unknown_routes_and_methods_are_told_in_openais_form() -> None:
    async def talk(http: httpx.AsyncClient) -> list[httpx.Response]:
        return [await http.get("/v1/no/such/route"), await http.get("/v1/chat/completions")]

    missing, wrong = ask(ScriptedExecutor(), talk)
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert missing.json()["error"]["type"] == wrong.json()["error"]["type"] == "invalid_request_error"
    assert "there is no GET /v1/no/such/route here" in missing.json()["error"]["message"]
    assert "there is no GET /v1/chat/completions here" in wrong.json()["error"]["message"]
    assert wrong.headers["allow"] == "POST"


def test_the_body_is_described_in_the_openapi_document() -> None:
    document = ask(ScriptedExecutor(), lambda http: http.get("/openapi.json")).json()
    operation = document["paths"]["/v1/chat/completions"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert "include_usage" in str(schema["properties"]["stream_options"])
    assert "$ref" not in str(schema)
    assert chat_body().keys() <= schema["properties"].keys()
