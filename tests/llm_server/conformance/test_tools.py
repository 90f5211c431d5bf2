"""Tool calls: free, forced and forbidden, whole and streamed."""

import json
from typing import Any

import pytest

from tests.llm_server.conformance.client import Client, Json

CITIES = ["Oslo", "naïve 🦜"]


def tool(name: str, **properties: Json) -> Json:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool("weather", city={"enum": CITIES})
TIDES = tool("tides", port={"enum": ["Bergen"]}, metres={"enum": [1, 2]})
TOOLS = [WEATHER, TIDES]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OTHER_CALL = '<tool_call>\n{"name": "tides", "arguments": {"port": "Bergen", "metres": 2}}\n</tool_call>'
NAMED: Json = {"type": "function", "function": {"name": "tides"}}
Calls = list[tuple[str, Any]]


def whole(server: Client, **fields: Any) -> tuple[str | None, Calls, str]:
    """Content, calls and finish reason of an answer."""
    choice = server.ask(max_tokens=200, tools=TOOLS, **fields)["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(call["type"] == "function" for call in calls)
    named = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    return choice["message"]["content"], named, choice["finish_reason"]


def streamed(server: Client, **fields: Any) -> tuple[str | None, Calls, str]:
    """The same, joined from a stream; each call is opened once, with its id and name."""
    choices = [event["choices"][0] for event in server.stream(max_tokens=200, tools=TOOLS, **fields)]
    pieces = [piece for choice in choices for piece in choice["delta"].get("tool_calls", ())]
    opened = [piece for piece in pieces if "id" in piece]
    assert [piece["index"] for piece in opened] == list(range(len(opened)))
    assert all(piece["type"] == "function" for piece in opened)
    arguments = [""] * len(opened)
    for piece in pieces:
        arguments[piece["index"]] += piece["function"]["arguments"]
    named = [(piece["function"]["name"], json.loads(text)) for piece, text in zip(opened, arguments, strict=True)]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    return content or None, named, choices[-1]["finish_reason"]


def says(text: str) -> Json:
    """Leave the model no other answer."""
    return {"guided_choice": [text]}


def test_a_call_of_the_models_own_choice(server: Client) -> None:
    expected = (None, [("weather", {"city": "Oslo"})], "tool_calls")
    assert whole(server, **says(CALL)) == expected
    assert streamed(server, **says(CALL), tool_choice="auto") == expected


def test_words_before_a_call_are_content(server: Client) -> None:
    expected = ("Let me look.", [("weather", {"city": "Oslo"})], "tool_calls")
    assert streamed(server, **says(f"Let me look.{CALL}")) == expected
    assert whole(server, **says(f"Let me look.{CALL}")) == expected


def test_an_answer_in_words_has_no_calls(server: Client) -> None:
    assert whole(server, **says("It rains.")) == streamed(server, **says("It rains.")) == ("It rains.", [], "stop")


def test_several_calls_at_once_unless_they_are_forbidden(server: Client) -> None:
    both = [("weather", {"city": "Oslo"}), ("tides", {"port": "Bergen", "metres": 2})]
    text = f"{CALL}\n{OTHER_CALL}"
    for answer in (whole, streamed):
        assert answer(server, **says(text)) == (None, both, "tool_calls")
        assert answer(server, **says(text), parallel_tool_calls=False) == (None, both[:1], "tool_calls")


def test_a_required_call_is_made_and_is_valid(server: Client) -> None:
    forced: Json = {"tool_choice": "required", "parallel_tool_calls": False}
    content, calls, finish = whole(server, **forced)
    assert (content, finish) == (None, "tool_calls")
    [(name, arguments)] = calls
    if name == "weather":
        assert arguments["city"] in CITIES
    else:
        assert (name, arguments["port"]) == ("tides", "Bergen")
    assert streamed(server, **forced) == (content, calls, finish)


def test_the_named_function_is_called(server: Client) -> None:
    content, [(name, arguments)], finish = whole(server, tool_choice=NAMED)
    assert (content, name, finish) == (None, "tides", "tool_calls")
    assert arguments["metres"] in (1, 2)
    assert streamed(server, tool_choice=NAMED) == (content, [(name, arguments)], finish)


def test_every_choice_makes_a_forced_call(server: Client) -> None:
    answer = server.ask(tools=TOOLS, tool_choice=NAMED, n=3, temperature=1.5, max_tokens=200)
    calls = [choice["message"]["tool_calls"][0]["function"] for choice in answer["choices"]]
    assert [call["name"] for call in calls] == ["tides"] * 3
    assert all(json.loads(call["arguments"])["port"] == "Bergen" for call in calls)


def test_forbidden_tools_do_not_reach_the_prompt(server: Client) -> None:
    with_tools, without, forbidden = (
        server.ask(max_tokens=1, **fields)["usage"]["prompt_tokens"]
        for fields in ({"tools": TOOLS}, {}, {"tools": TOOLS, "tool_choice": "none"})
    )
    assert forbidden == without < with_tools


def test_a_result_is_answered(server: Client) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    history = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "yes"},
    ]
    assert whole(server, **says("Yes."), messages=history) == ("Yes.", [], "stop")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required", "guided_regex": "a"}, "tool_choice"),
        ({"tools": [tool("bad", x={"type": "no such"})], "tool_choice": "required"}, "tool_choice"),
    ],
    ids=str,
)
def test_tools_of_a_wrong_form_are_refused_by_name(server: Client, fields: Json, param: str) -> None:
    assert server.refusal(**fields)["param"] == param
