"""Streams over both versions of HTTP, as they go over the wire."""

import json
import socket

import pytest

from tests.doubles import ScriptedExecutor, says
from tests.llm_server.serving import chat_body
from tests.llm_server.sockets import PATIENCE_S, listening, read_until


def post(port: int, version: str, *headers: str) -> socket.socket:
    body = json.dumps(chat_body(stream=True)).encode()
    lines = [f"POST /v1/chat/completions HTTP/{version}", "Host: test", *headers, f"Content-Length: {len(body)}"]
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return connection


@pytest.mark.parametrize("headers", [(), ("Connection: keep-alive",)])
def test_a_stream_over_http_1_0_has_no_chunks_and_ends_with_the_connection(headers: tuple[str, ...]) -> None:
    executor = ScriptedExecutor(says("Hello!"), pause_after=3)
    with listening(executor) as address, post(address.port, "1.0", *headers) as connection:
        data = read_until(connection, b'"content":"l"')  # before the answer is over
        address.loop.call_soon_threadsafe(executor.resume)
        while more := connection.recv(65536):
            data += more
    head, _, events = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert head.lower().count(b"connection: ") == 1
    assert all(event.startswith(b"data: ") for event in events.removesuffix(b"\n\n").split(b"\n\n"))
    assert events.endswith(b"data: [DONE]\n\n")


def test_a_stream_over_http_1_1_comes_in_chunks_and_leaves_the_connection_open() -> None:
    with listening(ScriptedExecutor()) as address, post(address.port, "1.1") as connection:
        assert b"transfer-encoding: chunked" in read_until(connection, b"0\r\n\r\n")
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n")
        assert b"200 OK" in read_until(connection, b"}")
