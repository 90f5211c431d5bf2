"""What holds for every family's parser, whatever the model writes."""

import json
import time
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stylers
from stylers import Delta, Styler, ToolCall
from stylers.output import EngineFinish, merge

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "n": {"type": "integer"},
                    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "list": {"type": "array"},
                    "map": {"$ref": "#/$defs/map"},
                },
                "$defs": {"map": {"type": "object"}},
            },
        },
    }
    for name in ("look", "look_up", "go")
]
MARKS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "look", "look_up", "go", ">", "<parameter="),
    *("text", "n", "list", "</parameter>", "</function>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<|channel|>", "analysis", "final", "commentary to=functions.", "<|message|>", "<|end|>", "<|start|>assistant"),
    *("<|channel>thought\n", "<channel|>", "<|tool_call>", "<tool_call|>", "call:", '<|"|>', "<|python_tag|>"),
    *("functools", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|action_start|>", "<|plugin|>", "<|action_end|>"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.", ":0", "<|tool_call_argument_begin|>"),
    *(
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "<|assistant|>",
        "```python",
        "```json",
        "```tool_code",
        "```",
    ),
    *("tool_call(", "Thought:", "\nAction:", "Action Input:", "Observation:", "Final Answer:"),
    *(
        '{"name": "look", "arguments": {',
        '{"arguments": {"text": "x"}, "name": "go"}',
        '"name": "look"',
        '"parameters": ',
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        ":",
        ",",
        "=",
        " ",
        "\n",
        "\t",
        "true",
        "None",
        "1.5",
        "é",
        "🙂",
        "x",
    ),
]
DEEPSEEK = [
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>", "<｜tool▁sep｜>"),  # noqa: RUF001
    *("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),  # noqa: RUF001
]
raws = st.lists(st.sampled_from([*MARKS, *DEEPSEEK]) | st.text(max_size=3), max_size=14).map("".join)
STYLERS = {str(styler.grammar(False)): styler for styler in map(stylers.get, stylers.names())}  # one of each grammar
by_name = pytest.mark.parametrize("styler", STYLERS.values(), ids=lambda styler: styler.name)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3),
    max_leaves=6,
)


def deltas_of(styler: Styler, pieces: list[str], finish: EngineFinish, **kwargs: Any) -> tuple[list[Delta], Any]:
    parser = styler.new_parser(tools=TOOLS, id_factory=lambda: "id", **kwargs)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.flush(finish)
    return deltas, merge(deltas, parser.finish_reason)


def pieces_of(raw: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    return [raw[start:end] for start, end in pairwise(places)]


@by_name
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(raw=raws, cuts=st.lists(st.integers(0, 400), max_size=8), prefilled=st.booleans(), stopped=st.booleans())
def test_cuts_change_nothing(styler: Styler, raw: str, cuts: list[int], prefilled: bool, stopped: bool) -> None:
    finish: EngineFinish = "stop" if stopped else "length"
    _, whole = deltas_of(styler, [raw], finish, prefilled_think=prefilled)
    for pieces in (list(raw), pieces_of(raw, cuts)):
        deltas, merged = deltas_of(styler, pieces, finish, prefilled_think=prefilled)
        assert merged == whole
        check_shape(deltas)
    assert whole == styler.parse(
        raw, tools=TOOLS, prefilled_think=prefilled, engine_finish=finish, id_factory=lambda: "id"
    )
    assert {call.name for call in whole.tool_calls} <= {"look", "look_up", "go"}


def check_shape(deltas: list[Delta]) -> None:
    """Each call is introduced once, by id and name, before its arguments; each delta is news of one kind."""
    seen = -1
    for delta in deltas:
        assert (delta.content is not None) + (delta.reasoning is not None) + bool(delta.tool_calls) == 1
        assert delta.content != ""
        for call in delta.tool_calls:
            assert (call.name is not None) == (call.id is not None) == (call.index == seen + 1)
            seen = call.index


@by_name
@given(text=st.text(max_size=40))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_without_tools_and_reasoning_content_is_the_raw_text(styler: Styler, text: str) -> None:
    raw = "".join(character for character in text if character not in "<|")
    message = styler.parse(raw)
    assert message.content == (raw or None)
    assert message.tool_calls == ()


@pytest.mark.parametrize(
    "styler", [styler for styler in STYLERS.values() if styler.call_format], ids=lambda styler: styler.name
)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    arguments=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "text": st.text(st.characters(exclude_characters="<`|", exclude_categories=["Cs"]), max_size=9),
                "n": st.integers(-(10**9), 10**9),
                "list": st.lists(st.integers(0, 9) | st.text("ab c", min_size=1), max_size=3),
                "map": st.dictionaries(st.text("ab", min_size=1), st.booleans() | st.none(), max_size=2),
            },
        ),
        min_size=1,
        max_size=3,
    )
)
def test_what_the_call_format_writes_is_what_is_read(styler: Styler, arguments: list[dict[str, Any]]) -> None:
    call_format = styler.call_format
    assert call_format is not None
    given = arguments if call_format.parallel else arguments[:1]
    calls = [ToolCall("look_up", json.dumps(each)) for each in given]
    message = styler.parse(call_format.write(calls), tools=TOOLS)
    assert message.content is None
    assert message.finish_reason == "tool_calls"
    assert [json.loads(call.arguments) for call in message.tool_calls] == given


@pytest.mark.parametrize(
    "styler", [styler for styler in STYLERS.values() if styler.call_format], ids=lambda styler: styler.name
)
@pytest.mark.parametrize("name", ["x" * 64, "a.b-c_d/e", "天気", "2"])
def test_every_name_that_a_function_may_have_is_read_as_it_is_written(styler: Styler, name: str) -> None:
    assert styler.call_format is not None
    raw = styler.call_format.write([ToolCall(name, '{"text": "x"}')])
    message = styler.parse(raw, tools=[{"type": "function", "function": {"name": name}}])
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [(name, {"text": "x"})]


def seconds(styler: Styler, pieces: list[str]) -> float:
    start = time.perf_counter()
    deltas_of(styler, pieces, "stop")
    return time.perf_counter() - start


BEGINNINGS = [
    '<tool_call>\n{"name": "look", "arguments": {"text": "',
    '<tool_call>{"arguments": {"text": "',
    '<tool_call>\n{"',
    "<tool_call>",
    "<tool_call>\n<function=look>\n<parameter=text>\n",
    "<tool_call>look\n<arg_key>n</arg_key>\n<arg_value>",
    '[look(text="',
    "<|channel|>",
    "<|tool_call>call:look{text:[[",
    'look\n{"text": ',
    "functools[",
]


@by_name
def test_no_text_makes_parsing_slow(styler: Styler) -> None:
    for beginning, filler in product(BEGINNINGS, ["word ", "<", " ", "[", '{"a":', "\\", "<tool_call>"]):
        raw = beginning + filler * (4_000 // len(filler))
        assert seconds(styler, [raw[at : at + 4] for at in range(0, len(raw), 4)]) < 0.5, (beginning, filler)


@by_name
def test_a_long_unclosed_call_takes_linear_time(styler: Styler) -> None:
    for beginning in BEGINNINGS:
        raw = beginning + "word " * 40_000
        assert seconds(styler, [raw[at : at + 400] for at in range(0, len(raw), 400)]) < 2.0, beginning


@pytest.mark.parametrize("styler", STYLERS.values(), ids=lambda styler: styler.name)
def test_a_long_tool_name_does_not_hold_back_text(styler: Styler) -> None:
    tool = {"type": "function", "function": {"name": "x" * 64}}
    text = "没有空格的长句子也要马上给出去不能等到工具名字的长度为止否则用户会觉得很慢"
    raw = f"<|channel|>final<|message|>{text}" if styler.name == "gpt-oss" else text
    parser = styler.new_parser(tools=[tool])
    given = "".join(delta.content or "" for character in raw for delta in parser.feed(character))
    assert len(text) - len(given) <= 1


@pytest.mark.parametrize(
    "styler", [styler for styler in STYLERS.values() if styler.call_format], ids=lambda styler: styler.name
)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_wherever_generation_ends_the_call_is_there_or_its_text_is_unless_the_limit_cut_it(
    styler: Styler, finish: EngineFinish
) -> None:
    call_format = styler.call_format
    assert call_format is not None
    raw = call_format.write([ToolCall("look", '{"text": "say }\\" now", "list": [1, 2], "map": {"b": null}}')])
    whole = styler.parse(raw, tools=TOOLS).tool_calls[0].arguments
    named = False
    for end in range(len(raw) + 1):
        message = styler.parse(raw[:end], tools=TOOLS, engine_finish=finish)
        if message.tool_calls:
            named = True
            (call,) = message.tool_calls
            assert call.name == "look"
            assert whole.startswith(call.arguments.rstrip())
            assert (message.content, message.finish_reason == finish) == (None, call.arguments.rstrip() != whole)
        else:
            assert not named, raw[:end]
            assert (message.content or "") == (raw[:end] if finish == "stop" else "")
            assert message.finish_reason == finish


@pytest.mark.parametrize(
    "styler",
    [styler for styler in STYLERS.values() if (calls := styler.call_format) and calls.parallel],
    ids=lambda styler: styler.name,
)
def test_a_limit_inside_the_head_of_another_call_keeps_the_calls_before(styler: Styler) -> None:
    assert styler.call_format is not None
    one = ToolCall("look", '{"text": "x"}')
    first = styler.call_format.write([one]).removesuffix(styler.call_format.end)
    raw = styler.call_format.write([one, ToolCall("go", '{"text": "y"}')])
    for end in range(len(first), raw.index("go", len(first)) + 2):
        message = styler.parse(raw[:end], tools=TOOLS, engine_finish="length")
        assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [("look", {"text": "x"})]
        assert message.content is None
    assert message.finish_reason == "length"


@pytest.mark.parametrize(
    "styler", [styler for styler in STYLERS.values() if styler.call_format], ids=lambda styler: styler.name
)
@pytest.mark.parametrize("name", ["lock", "l", "look_upon"])
def test_a_call_of_an_unknown_function_is_content_as_it_stands(styler: Styler, name: str) -> None:
    call_format = styler.call_format
    assert call_format is not None
    raw = call_format.write([ToolCall(name, '{"text": "x", "n": 2}')])
    for pieces in ([raw], list(raw)):
        _, message = deltas_of(styler, pieces, "stop")
        assert (message.content, message.tool_calls, message.finish_reason) == (raw, (), "stop")
    known = call_format.write([ToolCall("look", "{}")])
    if call_format.parallel and not call_format.begin:
        _, message = deltas_of(styler, [f"{raw}\n{known}"], "stop")
        assert (message.content, len(message.tool_calls)) == (raw, 1)


@pytest.mark.parametrize("name", ["mistral-nemo", "phi-4-mini", "llama-3.2", "gemma-3", "kimi-k2", "deepseek-v3"])
def test_each_element_of_a_list_is_a_call_of_its_own(name: str) -> None:
    styler = stylers.get(name)
    call_format = styler.call_format
    assert call_format is not None
    raw = call_format.write([ToolCall(each, '{"text": "x"}') for each in ("look", "lock", "go")])
    if name == "llama-3.2":
        raw = "[look(text='x'), lock(text='x'), go(text='x')]"
    for pieces in ([raw], list(raw)):
        _, message = deltas_of(styler, pieces, "stop")
        assert [call.name for call in message.tool_calls] == ["look", "go"]
        assert message.content is not None
        assert "lock" in message.content
        assert message.content in raw
