"""Grammars of tool calls: what they let through is what was asked for, in the family's notation."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from engines.call_grammar import lark_literal
from engines.contract import Guide, GuideKind
from engines.errors import UnsupportedFeatureError
from engines.folder import EngineFolder
from engines.guides import GuideCompiler

HERMES: dict[str, Any] = {
    "before_name": '<tool_call>\n{"name": "',
    "before_arguments": '", "arguments": ',
    "after_arguments": "}\n</tool_call>",
    "begin": "",
    "separator": "\n",
    "end": "",
    "layout": None,
}
LAYOUT = {"before_key": "<p=", "before_value": ">", "after_value": "</p>", "separator": "", "values": "text"}
XML = HERMES | {"before_name": "<f=", "before_arguments": ">", "after_arguments": "</f>", "layout": LAYOUT}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 4}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
    },
}
NOW: dict[str, Any] = {"name": "now", "parameters": {}}


@pytest.fixture(scope="module")
def folder(tiny_engine: Path) -> EngineFolder:
    return EngineFolder.load(tiny_engine)


def write(folder: EngineFolder, *, seed: int = 0, wish: str = "", **source: Any) -> str:
    """Write what a model with random logits writes under the guide; its wish comes as soon as it may."""
    tokenizer = Tokenizer.from_file(str(folder.tokenizer_path))
    vocab_size, ends = folder.description.vocab_size, folder.description.end_token_ids
    source = {"format": HERMES, "tools": [WEATHER], "max_calls": 1, "preamble": ""} | source
    matcher = GuideCompiler(folder.tokenizer_path, vocab_size, ends).matcher(
        Guide(GuideKind.CALL_FORMAT, json.dumps(source))
    )
    rng = np.random.default_rng(seed)
    written: list[int] = []
    wishes = tokenizer.encode(wish, add_special_tokens=False).ids
    for _ in range(2000):
        logits = rng.standard_normal(vocab_size).astype(np.float32)
        logits[list(ends)] += 3
        logits[wishes[:1]] += 100
        matcher.mask(logits)
        token_id = int(logits.argmax())
        if token_id in ends:
            break
        wishes = wishes[1:] if wishes[:1] == [token_id] else wishes
        written.append(token_id)
        matcher.advance(token_id)
    else:
        raise AssertionError("the call never ends")
    return str(tokenizer.decode(written, skip_special_tokens=False))


@pytest.mark.parametrize("seed", range(4))
def test_a_named_call_is_written_once_with_arguments_that_fit_its_schema(folder: EngineFolder, seed: int) -> None:
    text = write(folder, seed=seed)
    found = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text, re.DOTALL)
    assert found, text
    call = json.loads(found[1])
    assert call["name"] == "weather"
    assert set(call["arguments"]) == {"city", "unit"}
    assert call["arguments"]["unit"] in ("c", "f")


def test_any_of_several_tools_any_number_of_times(folder: EngineFolder) -> None:
    texts = [write(folder, seed=seed, tools=[WEATHER, NOW], max_calls=None) for seed in range(8)]
    names = [re.findall(r'"name": "(\w+)"', text) for text in texts]
    assert {name for found in names for name in found} == {"weather", "now"}
    assert all(names)


def test_arguments_in_a_layout_of_their_own(folder: EngineFolder) -> None:
    text = write(folder, format=XML, wish="Bonn</p>")
    assert re.fullmatch(r'<f=weather><p=city>.*?</p><p=unit>"[cf]"</p></f>', text, re.DOTALL), text


def test_a_numbered_call(folder: EngineFolder) -> None:
    text = write(folder, format=HERMES | {"before_arguments": ':{index}", "arguments": '}, tools=[NOW])
    assert re.match(r'<tool_call>\n\{"name": "now:[0-9]+", "arguments": ', text), text


def test_reasoning_that_is_open_ends_before_the_call(folder: EngineFolder) -> None:
    _, mark, call = write(folder, preamble="</think>", tools=[NOW], wish="Hm.</think>").partition("</think>")
    assert mark
    assert call.startswith("<tool_call>")


def test_control_tokens_are_asked_for_as_tokens() -> None:
    control = {"<|call|>": 7, "<|call": 8}
    assert lark_literal('a"<|call|>b', control) == '"a\\"" <[7]> "b"'
    assert lark_literal("ñ🦜", control) == '"ñ🦜"'
    assert lark_literal("", control) == ""


def test_a_notation_that_cannot_be_enforced_is_refused_by_name(folder: EngineFolder) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        write(folder, format=XML | {"layout": LAYOUT | {"values": "python"}})
    assert caught.value.param == "tool_choice"
