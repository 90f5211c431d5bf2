"""Every output case, whole and however its stream is cut."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import stylers
from stylers import Delta, OutputParser, ParsedMessage
from stylers.output import EngineFinish, merge
from tests.stylers.data import output_names, outputs

MAX_HELD_CHARS = 24
Case = dict[str, Any]


def cases() -> Iterator[Any]:
    for family in output_names():
        for case in outputs(family):
            if not case.get("ambiguous"):
                yield pytest.param(family, case, id=f"{family}-{case['case']}")


def parser_for(family: str, case: Case) -> OutputParser:
    return stylers.get(family).new_parser(tools=case["tools"], prefilled_think=case["prefilled_think"])


def read(parser: OutputParser, pieces: Iterable[str], finish: EngineFinish) -> ParsedMessage:
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.flush(finish)
    return merge(deltas, parser.finish_reason)


def as_expected(message: ParsedMessage, case: Case) -> None:
    expect = case["expect"]
    assert (message.content or "").strip() == (expect["content"] or "").strip()
    assert (message.reasoning or "").strip() == (expect["reasoning"] or "").strip()
    assert [call.name for call in message.tool_calls] == [call["name"] for call in expect["tool_calls"]]
    for call, expected in zip(message.tool_calls, expect["tool_calls"], strict=True):
        if "arguments_text" in expected:
            assert call.arguments.strip() == expected["arguments_text"].strip()
        else:
            assert json.loads(call.arguments) == expected["arguments"]
    assert message.finish_reason == expect["finish_reason"]


@pytest.mark.parametrize(("family", "case"), list(cases()))
def test_an_answer_is_read_as_expected(family: str, case: Case) -> None:
    message = stylers.get(family).parse(
        case["raw"],
        tools=case["tools"],
        prefilled_think=case["prefilled_think"],
        engine_finish=case["engine_finish"],
    )
    as_expected(message, case)


@pytest.mark.parametrize(("family", "case"), list(cases()))
def test_the_cut_of_the_stream_changes_nothing(family: str, case: Case) -> None:
    raw, finish = case["raw"], case["engine_finish"]
    whole = read(parser_for(family, case), [raw], finish)
    cuts = [[raw[:cut], raw[cut:]] for cut in range(len(raw) + 1)]
    for pieces in (*cuts, list(raw)):
        message = read(parser_for(family, case), pieces, finish)
        assert without_ids(message) == without_ids(whole), pieces


@pytest.mark.parametrize(("family", "case"), [each for each in cases() if each.values[1]["tools"]])
def test_a_limit_never_shows_what_the_whole_answer_does_not(family: str, case: Case) -> None:
    raw, shown = case["raw"], (read(parser_for(family, case), [case["raw"]], "stop").content or "").strip()
    for end in range(len(raw)):
        content = (read(parser_for(family, case), [raw[:end]], "length").content or "").strip()
        is_thought = raw.startswith("Thought:") and content in raw.partition("\n")[0]  # dropped with the final answer
        assert shown.startswith(content) or is_thought, raw[:end]


def without_ids(message: ParsedMessage) -> object:
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return message.content, message.reasoning, calls, message.finish_reason


def kind_of(delta: Delta) -> str | None:
    return delta.content or delta.reasoning


@pytest.mark.parametrize(("family", "case"), list(cases()))
def test_little_is_held_back(family: str, case: Case) -> None:
    kinds: dict[str, Callable[[Delta], str | None]] = {
        "content": lambda d: d.content,
        "reasoning": lambda d: d.reasoning,
    }
    raw = case["raw"]
    for kind, text_of in kinds.items():
        text = (case["expect"][kind] or "").strip()
        if not text or raw.count(text) != 1 or any(mark in text for mark in "<[{|`\n"):
            continue
        parser, start, given = parser_for(family, case), raw.index(text), ""
        for index, character in enumerate(raw):
            given += "".join(text_of(delta) or "" for delta in parser.feed(character))
            fed = min(index + 1 - start, len(text))
            assert fed - len(given.lstrip()) <= MAX_HELD_CHARS


def test_a_call_has_an_id_and_its_name_comes_first() -> None:
    case = next(case for case in outputs("qwen2.5") if case["case"] == "one_call")
    parser = stylers.get("qwen2.5").new_parser(tools=case["tools"], id_factory=lambda: "call_1")
    deltas = [call for piece in case["raw"] for delta in parser.feed(piece) for call in delta.tool_calls]
    first, *rest = deltas
    assert (first.index, first.id, first.name) == (0, "call_1", "find_trains")
    assert all(call.id is None and call.name is None for call in rest)
    assert "".join(call.arguments or "" for call in deltas) == '{"origin": "Porto", "destination": "Braga"}'
    assert len(rest) > 30  # fragments, as they arrive
