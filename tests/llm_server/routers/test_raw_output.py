"""Raw output of several families, token by token through the server: what comes out is what the styler's parse says."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import stylers
from stylers.output import ParsedMessage
from tests.doubles import CHAT_TEMPLATE, END_ID, INFO, ScriptedExecutor
from tests.llm_server.serving import ask, chat_body, events_of

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("north", "north_east")
]
CALL = '<tool_call>\n{"name": "north_east", "arguments": {"to": "🦜"}}\n</tool_call>'
LLAMA_CALL = '{"name": "north", "parameters": {"to": "é"}}'
MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    CALL,
    LLAMA_CALL,
    "\n",
    "{",
    "north",
    '"',
    "<|python_tag|>",
]
raws = st.lists(st.sampled_from(MARKS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=6)
WIDE = replace(INFO, max_sequence_length=4096, num_blocks=256)


def answer(name: str, raw: str, field: str, *, stream: bool) -> ParsedMessage:
    executor = ScriptedExecutor(lambda _: [*raw.encode(), END_ID], info=WIDE)
    body = chat_body(tools=TOOLS, stream=stream)
    styler = stylers.get(name).for_model(chat_template=CHAT_TEMPLATE)
    fields: dict[str, Any] = {"styler": styler, "reasoning_field": field}
    response = ask(executor, lambda http: http.post("/v1/chat/completions", json=body), **fields)
    assert response.status_code == 200, response.text
    choices = [event["choices"][0] for event in events_of(response)] if stream else response.json()["choices"]
    messages = [choice["delta" if stream else "message"] for choice in choices]
    assert {"reasoning_content", "reasoning"} & set().union(*messages) <= {field}
    calls: dict[int, list[str]] = {}
    for message in messages:
        for position, call in enumerate(message.get("tool_calls") or ()):
            name_and_arguments = calls.setdefault(call.get("index", position), ["", ""])
            name_and_arguments[0] += call["function"].get("name", "")
            name_and_arguments[1] += call["function"].get("arguments", "")
    return ParsedMessage(
        content="".join(message.get("content") or "" for message in messages) or None,
        reasoning="".join(message.get(field) or "" for message in messages) or None,
        tool_calls=tuple(stylers.ToolCall(*calls[index]) for index in sorted(calls)),
        finish_reason=choices[-1]["finish_reason"],
    )


@pytest.mark.parametrize("name", ["qwen3", "qwen2.5", "llama-3.1"])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(pieces=raws)
@example(pieces=["<think>", "Rain?", "</think>", "Hi", CALL])
@example(pieces=[LLAMA_CALL])
def test_raw_output_comes_out_as_the_styler_parses_it(name: str, field: str, pieces: list[str]) -> None:
    raw = "".join(pieces)
    parsed = stylers.get(name).parse(raw, tools=TOOLS)
    expected = replace(parsed, tool_calls=tuple(replace(call, id=None) for call in parsed.tool_calls))
    for stream in (False, True):
        assert answer(name, raw, field, stream=stream) == expected, json.dumps(raw)
