import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from benchmarks.client import Client, open_session
from benchmarks.load import ClosedLoop, OpenLoop
from benchmarks.report import hide_key
from benchmarks.serve import app, parse_loads
from benchmarks.sse import Answer, Failure
from tests.benchmarks.scripted_server import DONE, FINISH, ROLE, Body, Reply, delta, says, serving, usage


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def send(base_url: str, timeout_s: float = 60.0, ticks: Sequence[float] = ()) -> Answer | Failure:
    """Send one chat, timed by a clock that shows `ticks` one after the other."""
    clock = iter([*ticks, *[99.0] * 1000])

    async def ask() -> Answer | Failure:
        async with open_session(None, timeout_s) as session:
            return await Client(session, base_url, lambda: next(clock)).send(b"{}")

    return asyncio.run(ask())


def test_measures_each_load_in_turn_and_writes_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with serving(lambda body: says("a", " b", " c")) as server:
        result = run(
            *("--base-url", server.base_url, "--concurrency", "1,2", "--num-requests", "5", "--warmup", "2"),
            *("--max-tokens", "3", "--ignore-eos", "--json", str(path), "--api-key", "secret"),
        )
    assert result.exit_code == 0, result.output
    assert len(server.chats) == 2 + 2 * 5
    assert {(chat["model"], chat["max_tokens"], chat["ignore_eos"]) for chat in server.chats} == {("scripted", 3, True)}
    assert set(server.keys) == {"Bearer secret"}
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["servers"] == [{"base_url": server.base_url, "model": "scripted", "version": "1.2.3"}]
    assert [row["load"] for row in report["rows"]] == [{"kind": "closed", "concurrency": count} for count in (1, 2)]
    for row in report["rows"]:
        assert (row["num_requests"], row["num_failed"], row["num_chunks"]) == (5, 0, 15)
        assert (row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]) == (50, 15, 20)
        assert row["output_tokens_per_s"] == pytest.approx(3 * row["requests_per_s"])
        assert row["ttft_s"]["p50"] <= row["e2e_s"]["p50"]
    assert {"command", "date", "machine", "versions", "workload"} <= report.keys()
    assert "1 clients" in result.output
    assert "us/chunk" in result.output


def test_failed_requests_are_named_and_make_the_exit_code_1(tmp_path: Path) -> None:
    replies = iter([says("a"), Reply([b'{"error": "busy"}'], status=429), Reply([ROLE, delta(content="a")]), says("b")])
    with serving(lambda body: next(replies)) as server:
        arguments = ("--concurrency", "1", "--num-requests", "4", "--warmup", "0", "--json", str(tmp_path / "out.json"))
        result = run("--base-url", server.base_url, *arguments)
    assert result.exit_code == 1, result.output
    assert 'failed: 1 x http_429: {"error": "busy"}' in result.output
    assert "failed: 1 x truncated" in result.output
    (row,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"]
    assert row["errors"] == {"http_429": 1, "truncated": 1}
    assert row["completion_tokens"] == 2


def test_without_usage_no_token_rate_is_reported() -> None:
    with serving(lambda body: Reply([ROLE, delta(content="a"), delta(content="b"), FINISH, DONE])) as server:
        result = run("--base-url", server.base_url, "--num-requests", "3", "--warmup", "0")
    assert result.exit_code == 0, result.output
    assert "without usage: nothing that needs a token count is reported" in result.output


def test_arrivals_come_at_a_rate() -> None:
    with serving(lambda body: says("a")) as server:
        result = run("--base-url", server.base_url, "--rate", "2000", "--num-requests", "6", "--prompt-words", "7")
    assert result.exit_code == 0, result.output
    assert "2000/s" in result.output
    assert "behind their plan" in result.output


def test_compares_two_servers_in_alternating_rounds_with_the_same_prompts(tmp_path: Path) -> None:
    order: list[str] = []

    def answer(name: str) -> Reply:
        order.append(name)
        return says("x", "y") if name == "a" else says("x")

    path = tmp_path / "out.json"
    with serving(lambda body: answer("a"), model="a") as first, serving(lambda body: answer("b"), model="b") as second:
        result = run(
            *("--compare", first.base_url, second.base_url, "--rounds", "3", "--num-requests", "2", "--warmup", "0"),
            *("--prompt-words", "5", "--concurrency", "1", "--json", str(path)),
        )
    assert result.exit_code == 0, result.output
    assert "".join(order) == "aabb" + "bbaa" + "aabb"
    assert [chat["messages"] for chat in first.chats] == [chat["messages"] for chat in second.chats]
    assert {chat["model"] for chat in second.chats} == {"b"}
    report = json.loads(path.read_text(encoding="utf-8"))
    assert [server["model"] for server in report["servers"]] == ["a", "b"]
    assert report["ratios"][0]["figure"] == "out tok/s"
    assert "A / B" in result.output


def test_random_prompts_are_as_long_as_the_server_counts_them() -> None:
    def answer(body: Body) -> Reply:
        messages = body["messages"]
        assert isinstance(messages, list)
        return says("a", prompt_tokens=20 + 2 * len(messages[0]["content"].split()))

    with serving(answer) as server:
        result = run("--base-url", server.base_url, "--random-tokens", "100", "--num-requests", "2", "--warmup", "0")
    assert result.exit_code == 0, result.output
    assert [len(str(chat["messages"]).split()) for chat in server.chats[-2:]] == [40 + 3, 40 + 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--concurrency", "0"), "positive"),
        (("--concurrency", "x"), "list of numbers"),
        (("--rate", "nan"), "positive"),
        (("--rate", "1", "--concurrency", "1"), "exclude each other"),
        (("--random-tokens", "5", "--prompt-words", "5"), "exclude each other"),
        (("--data", "none.jsonl"), "No such file"),
    ],
)
def test_mistakes_are_told_with_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    with serving(lambda body: says("a")) as server:
        result = run("--base-url", server.base_url, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not server.chats


def test_a_server_that_is_not_there_or_refuses_the_first_chat_is_no_measurement() -> None:
    assert run("--base-url", f"http://127.0.0.1:{free_port()}/v1").exit_code == 2
    with serving(lambda body: Reply([b"no key"], status=401)) as server:
        result = run("--base-url", server.base_url)
    assert result.exit_code == 2
    assert "warm-up failed: http_401: no key" in result.output


def free_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port: int = closed.getsockname()[1]
    return port


def test_times_are_those_of_the_clock_from_the_moment_of_sending() -> None:
    whole = b"".join([ROLE, delta(content="a"), FINISH, usage(5, 2), DONE])
    with serving(lambda body: Reply([whole])) as server:
        found = send(server.base_url, ticks=[90.0])
    assert isinstance(found, Answer)
    assert (found.text_times_s, found.end_s) == ([9.0], 9.0)


def test_a_connection_that_fails_and_an_answer_that_takes_too_long_are_failures_of_their_own() -> None:
    refused = send(f"http://127.0.0.1:{free_port()}/v1")
    assert isinstance(refused, Failure)
    assert refused.kind == "connection"
    over = threading.Event()

    def stall(body: Body) -> Reply:
        over.wait()
        return Reply([])

    with serving(stall) as server:
        late = send(server.base_url, timeout_s=0.05)
        over.set()
    assert late == Failure("timeout", "no complete answer in time")


def test_loads_are_lists() -> None:
    assert parse_loads(None, None, 0) == [ClosedLoop(16)]
    assert parse_loads("1, 4", None, 0) == [ClosedLoop(1), ClosedLoop(4)]
    assert parse_loads(None, "0.5,2", 7) == [OpenLoop(0.5, 7), OpenLoop(2.0, 7)]
    with pytest.raises(typer.BadParameter):
        parse_loads("-1", None, 0)


def test_the_key_is_in_no_report() -> None:
    assert hide_key(["serve.py", "--api-key", "secret", "--api-key=secret", "--seed", "1"]) == [
        *("serve.py", "--api-key", "***", "--api-key=***", "--seed", "1")
    ]
