from typing import Any

import pytest

from stylers import Chat, Media, Role, StylerError, Text, ToolChoice

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}}}]


def chat(*messages: dict[str, Any], **request: Any) -> Chat:
    return Chat.from_openai({"messages": list(messages), **request})


def test_every_kind_of_message_is_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"at": "ü"}}}
    read = chat(
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        tools=TOOLS,
    )
    developer, user, assistant, tool = read.messages
    assert developer.role is Role.DEVELOPER
    assert (user.content, user.text, user.name) == ((Text("a"), Text("b")), "a\nb", "Ann")
    assert (assistant.content, assistant.text, assistant.reasoning) == (None, "", "hm")
    assert assistant.tool_calls[0].arguments == '{"at": "ü"}'
    assert (tool.tool_call_id, tool.text) == ("c1", "seen")
    assert read.tools[0].properties == {"at": {"type": "string"}}


def test_images_keep_their_place_among_the_parts() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}}, {"type": "text", "text": "?"}]
    read = chat({"role": "user", "content": parts})
    assert read.media == (Media("image", "data:,x", "low"),)
    assert read.messages[0].content == (Media("image", "data:,x", "low"), Text("?"))


def test_switches_reach_the_template() -> None:
    read = chat(
        {"role": "user", "content": "x"},
        reasoning_effort="high",
        enable_thinking=True,
        chat_template_kwargs={"enable_thinking": False, "date_string": "today"},
    )
    assert read.template_kwargs == {"reasoning_effort": "high", "enable_thinking": False, "date_string": "today"}


def test_continuing_the_final_message_asks_for_no_new_turn() -> None:
    assert not chat({"role": "assistant", "content": "x"}, continue_final_message=True).add_generation_prompt


@pytest.mark.parametrize(
    ("choice", "expected", "tools"),
    [
        (None, ToolChoice("auto"), 1),
        ("none", ToolChoice("none"), 0),
        ("required", ToolChoice("required"), 1),
        ({"type": "function", "function": {"name": "look"}}, ToolChoice("function", "look"), 1),
    ],
)
def test_tool_choice(choice: object, expected: ToolChoice, tools: int) -> None:
    read = chat({"role": "user", "content": "x"}, tools=TOOLS, tool_choice=choice)
    assert (read.tool_choice, len(read.tools)) == (expected, tools)


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("request_body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
        ({"messages": [USER], "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": [USER], "tools": [{"function": {}}]}, "tools[0].function.name"),
        ({"messages": [USER], "tools": [*TOOLS, *TOOLS]}, "tools[1].function.name"),
        (
            {"messages": [USER], "tools": [{"function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"messages": [USER], "tools": [{"function": {"name": "f", "description": 3}}]},
            "tools[0].function.description",
        ),
        ({"messages": [USER], "tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"messages": [USER], "tool_choice": "required"}, "tool_choice"),
        ({"messages": [USER], "tools": TOOLS, "tool_choice": {"function": {"name": "f"}}}, "tool_choice"),
        ({"messages": [USER], "tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"messages": [USER], "chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"messages": [USER], "documents": ["x"]}, "documents[0]"),
        (
            {"messages": [USER], "add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
        ),
        ({"messages": [USER], "continue_final_message": "yes"}, "continue_final_message"),
    ],
)
def test_a_refusal_names_the_part_it_is_about(request_body: dict[str, Any], param: str) -> None:
    with pytest.raises(StylerError) as refused:
        Chat.from_openai(request_body)
    assert refused.value.param == param


UNWRITABLE_NAMES = [
    "",
    "x" * 65,
    "a b",
    "a\nb",
    "a\0b",
    'a"b',
    "a\\b",
    "a<b",
    "a(b",
    "a{b",
    "a,b",
    "a`b",
    "a\u2028b",
    3,
]


@pytest.mark.parametrize("name", UNWRITABLE_NAMES)
def test_a_function_name_that_cannot_be_written_is_refused_wherever_it_stands(name: object) -> None:
    function = {"name": name, "arguments": "{}"}
    with pytest.raises(StylerError) as in_tools:
        chat(USER, tools=[{"type": "function", "function": function}])
    with pytest.raises(StylerError) as in_history:
        chat(USER, {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]})
    assert in_tools.value.param == "tools[0].function.name"
    assert in_history.value.param == "messages[1].tool_calls[0].function.name"


@pytest.mark.parametrize("name", ["x" * 64, "server.tool-2", "mcp/files/read_file", "天気"])
def test_names_that_frameworks_use_are_taken(name: str) -> None:
    assert chat(USER, tools=[{"type": "function", "function": {"name": name}}]).tools[0].name == name
