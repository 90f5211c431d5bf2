"""Forced and single tool calls."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from engines.contract import GuideKind
from stylers import get
from tests.doubles import CHAT_TEMPLATE, INFO, ScriptedExecutor, says
from tests.llm_server.serving import ask, chat_body, events_of, post_chat

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("north", "south")
]
TWO_CALLS = (
    '<tool_call>\n{"name": "north", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "south", "arguments": {}}\n</tool_call>'
)


def ask_with_tools(executor: ScriptedExecutor, **fields: Any) -> httpx.Response:
    styler = get("qwen2.5").for_model(chat_template=CHAT_TEMPLATE)
    body = chat_body(tools=TOOLS, **fields)
    return ask(executor, lambda http: http.post("/v1/chat/completions", json=body), styler=styler)


@pytest.mark.parametrize(
    ("choice", "names", "max_calls"),
    [
        ("required", ["north", "south"], None),
        ({"type": "function", "function": {"name": "south"}}, ["south"], 1),
    ],
)
def test_a_forced_call_becomes_a_guide(choice: Any, names: list[str], max_calls: int | None) -> None:
    executor = ScriptedExecutor(says(TWO_CALLS))
    response = ask_with_tools(executor, tool_choice=choice)
    assert response.status_code == 200, response.text
    guide = executor.requests[0].guide
    assert guide is not None
    assert guide.kind == GuideKind.CALL_FORMAT
    source = json.loads(guide.source)
    assert [tool["name"] for tool in source["tools"]] == names
    assert source["max_calls"] == max_calls
    assert source["format"]["before_name"].startswith("<tool_call>")


def test_a_free_choice_has_no_guide() -> None:
    executor = ScriptedExecutor(says("Hello."))
    assert ask_with_tools(executor, tool_choice="auto").status_code == 200
    assert executor.requests[0].guide is None


@pytest.mark.parametrize("stream", [False, True])
def test_without_parallel_calls_the_answer_ends_after_the_first(stream: bool) -> None:
    executor = ScriptedExecutor(says(TWO_CALLS, ends=False), info=replace(INFO, max_sequence_length=1000))
    response = ask_with_tools(executor, parallel_tool_calls=False, stream=stream)
    if stream:
        choices = [choice for event in events_of(response) for choice in event["choices"]]
        names = [
            call["function"]["name"]
            for choice in choices
            for call in choice["delta"].get("tool_calls", ())
            if "name" in call["function"]
        ]
        finish = choices[-1]["finish_reason"]
        first = next(choice["delta"] for choice in choices if choice["delta"].get("tool_calls"))
        assert first["tool_calls"][0]["function"] == {"name": "north", "arguments": ""}
    else:
        choice = response.json()["choices"][0]
        names = [call["function"]["name"] for call in choice["message"]["tool_calls"]]
        finish = choice["finish_reason"]
    assert (names, finish) == (["north"], "tool_calls")
    assert executor.cancelled


def test_a_family_without_calls_says_how_to_get_some() -> None:
    response = post_chat(tools=TOOLS)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"
    assert "--generic-tools" in response.json()["error"]["message"]


def test_a_forced_call_and_another_format_exclude_each_other() -> None:
    response = ask_with_tools(ScriptedExecutor(), tool_choice="required", response_format={"type": "json_object"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tool_choice"
