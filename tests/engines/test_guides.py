"""Guides where grammars are at their worst: large ones, and ones that no text satisfies."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.contract import Guide, GuideKind
from engines.errors import GuideError
from engines.folder import EngineFolder
from engines.guides import GuideCompiler, GuideMatcher


@pytest.fixture(scope="module")
def compiler(tiny_engine: Path) -> GuideCompiler:
    folder = EngineFolder.load(tiny_engine)
    description = folder.description
    return GuideCompiler(folder.tokenizer_path, description.vocab_size, description.end_token_ids)


def allowed(matcher: GuideMatcher, vocab_size: int) -> NDArray[np.intp]:
    logits = np.zeros(vocab_size, np.float32)
    matcher.mask(logits)
    return np.flatnonzero(np.isfinite(logits))


def test_a_choice_of_thousands_can_be_followed_to_its_end(compiler: GuideCompiler, tiny_engine: Path) -> None:
    description = EngineFolder.load(tiny_engine).description
    matcher = compiler.matcher(Guide(GuideKind.CHOICE, json.dumps([str(n) for n in range(9999)])))
    for _ in range(5):
        token_ids = allowed(matcher, description.vocab_size)
        assert matcher.error is None
        if token_ids[0] in description.end_token_ids:
            break
        matcher.advance(int(token_ids[0]))
    assert set(token_ids.tolist()) & set(description.end_token_ids)


def test_an_unsupported_keyword_of_a_tool_is_named_with_its_place(compiler: GuideCompiler) -> None:
    marks = {
        "before_name": "[",
        "before_arguments": "",
        "after_arguments": "]",
        "begin": "",
        "separator": "",
        "end": "",
    }
    tools = [{"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}]
    source = {"format": {**marks, "layout": None}, "tools": tools, "max_calls": 1, "preamble": ""}
    with pytest.raises(GuideError, match=r"not supported: #/tools/0/parameters/properties/a/not$"):
        compiler.matcher(Guide(GuideKind.CALL_FORMAT, json.dumps(source)))


@pytest.mark.parametrize(
    "guide",
    [Guide(GuideKind.REGEX, r"[^\s\S]"), Guide(GuideKind.JSON_SCHEMA, '{"$ref": "#"}')],
    ids=lambda guide: str(guide.kind),
)
def test_what_cannot_be_followed_is_told_in_a_short_line(
    compiler: GuideCompiler, tiny_engine: Path, guide: Guide
) -> None:
    matcher = compiler.matcher(guide)
    token_ids = allowed(matcher, EngineFolder.load(tiny_engine).description.vocab_size)
    matcher.advance(int(token_ids[0]))
    assert matcher.error
    assert "\n" not in matcher.error
    assert "<state>" not in matcher.error
