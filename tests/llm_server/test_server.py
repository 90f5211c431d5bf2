import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from llm_server.app import create_app
from llm_server.config import ServerConfig
from llm_server.lifecycle import Lifecycle
from llm_server.registry import ModelRegistry
from llm_server.server import Server
from tests.doubles import ScriptedExecutor
from tests.llm_server.serving import chat_body, served
from tests.llm_server.sockets import PATIENCE_S


@contextmanager
def server_process(drain_timeout_s: float) -> Iterator["tuple[subprocess.Popen[str], httpx.Client]"]:
    command = [sys.executable, "-m", "tests.llm_server.drain_entry", str(drain_timeout_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as http:
                yield process, http
        finally:
            process.kill()


def until_draining(http: httpx.Client) -> httpx.Response:
    while (response := http.get("/health/ready")).status_code == 200:
        pass
    return response


def content(lines: Iterator[str], until: str) -> str:
    """The text of a stream up to the piece `until`, or to its end marker."""
    text = ""
    for line in lines:
        if line == "data: [DONE]":
            return f"{text} DONE"
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            text += event["choices"][0]["delta"].get("content", "") if "choices" in event else event["error"]["code"]
        if text.endswith(until):
            return text
    raise AssertionError(f"the stream broke off after {text!r}")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish_and_turns_new_requests_away(signum: signal.Signals) -> None:
    with server_process(30) as (process, http):
        with http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as stream:
            lines = stream.iter_lines()
            assert content(lines, "before") == "before"
            process.send_signal(signum)
            assert until_draining(http).json() == {"status": "draining"}
            refused = http.post("/v1/chat/completions", json=chat_body())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert http.get("/health").status_code == 200
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert content(lines, "never") == " and after DONE"
        assert process.wait(PATIENCE_S) == 0


def test_after_the_deadline_streams_end_with_an_error() -> None:
    with server_process(0.05) as (process, http):
        with http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as stream:
            lines = stream.iter_lines()
            assert content(lines, "before") == "before"
            process.terminate()
            assert content(lines, "never") == "engine_dead DONE"
        assert process.wait(PATIENCE_S) == 0


def test_a_second_signal_stops_at_once() -> None:
    with (
        server_process(30) as (process, http),
        http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as stream,
    ):
        assert content(stream.iter_lines(), "before") == "before"
        process.terminate()
        until_draining(http)
        process.terminate()
        assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_an_idle_server_stops_at_once() -> None:
    with server_process(30) as (process, _):
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_drain_ends_when_the_last_request_leaves_or_time_is_up() -> None:
    async def run() -> tuple[bool, bool]:
        lifecycle = Lifecycle()
        lifecycle.enter()
        too_late = await lifecycle.drain(0)
        lifecycle.leave()
        return too_late, await lifecycle.drain(0)

    assert asyncio.run(run()) == (False, True)


def test_the_server_goes_on_while_any_engine_is_alive_and_stops_without() -> None:
    executors = [ScriptedExecutor(), ScriptedExecutor()]
    registry = ModelRegistry([served(executor, name) for executor, name in zip(executors, "ab", strict=True)])
    lifecycle = Lifecycle()
    server = Server(create_app(ServerConfig(), registry, lifecycle), ServerConfig(), lifecycle, registry)

    async def story() -> None:
        for executor in executors:
            await executor.start()
        assert not await server.on_tick(1)
        executors[0].is_alive = False
        assert not await server.on_tick(1)
        assert not server.engine_died
        executors[1].is_alive = False
        await server.on_tick(1)
        assert server.engine_died
        assert await lifecycle.drain(PATIENCE_S)
        while not server.should_exit:
            await asyncio.sleep(0)

    asyncio.run(story())
