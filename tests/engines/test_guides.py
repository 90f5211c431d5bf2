"""Guides where grammars are at their worst: large ones, and ones that no text satisfies."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.contract import Guide, GuideKind
from engines.errors import GuideError
from engines.folder import EngineFolder
from engines.guides import GuideCompiler, GuideMatcher
from llm_server.tokenizer import Tokenizer


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
    [
        Guide(GuideKind.REGEX, r"[^\s\S]"),
        Guide(GuideKind.JSON_SCHEMA, '{"$ref": "#"}'),
        Guide(GuideKind.GRAMMAR, "start: start"),
    ],
    ids=lambda guide: str(guide.kind),
)
def test_what_cannot_be_followed_is_told_in_a_short_line(compiler: GuideCompiler, guide: Guide) -> None:
    with pytest.raises(GuideError, match="cannot be followed: ") as refused:
        compiler.matcher(guide)
    assert "\n" not in refused.value.message
    assert "<state>" not in refused.value.message


@pytest.mark.parametrize(
    ("guide", "reason"),
    [
        (Guide(GuideKind.JSON_SCHEMA, "3"), "a schema is an object"),
        (Guide(GuideKind.JSON_SCHEMA, "false"), "Unsatisfiable"),
        (Guide(GuideKind.JSON_SCHEMA, '{"$ref": "#/$defs/x"}'), "Pointer '/\\$defs/x' does not exist$"),
        (Guide(GuideKind.GRAMMAR, " "), "No 'root' rule found"),
        (Guide(GuideKind.GRAMMAR, "root ::= " + "(" * 5000), "recursion"),
        (Guide(GuideKind.REGEX, "(?=x)"), "look-around"),
        (Guide(GuideKind.GRAMMAR, "start: A\nA: " + " & ".join(["/a*/"] * 66)), "hold at once"),
        (Guide(GuideKind.JSON_SCHEMA, json.dumps({"not": {"allOf": [{"pattern": "a"}] * 66}})), "hold at once"),
    ],
    ids=str,
)
def test_what_does_not_compile_is_refused_with_its_reason(compiler: GuideCompiler, guide: Guide, reason: str) -> None:
    with pytest.raises(GuideError, match=reason):
        compiler.matcher(guide)


END_TEXT = "<|im_end|>"


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (Guide(GuideKind.CHOICE, json.dumps([END_TEXT])), END_TEXT),
        (Guide(GuideKind.JSON_SCHEMA, json.dumps({"const": f"x{END_TEXT}"})), f'"x{END_TEXT}"'),
        (Guide(GuideKind.REGEX, r"a<\|im_end\|>"), f"a{END_TEXT}"),
        (Guide(GuideKind.GRAMMAR, f'root ::= "{END_TEXT}"'), END_TEXT),
    ],
    ids=lambda value: str(getattr(value, "kind", "")),
)
def test_the_text_of_a_control_token_is_written_as_text(
    compiler: GuideCompiler, tiny_engine: Path, guide: Guide, expected: str
) -> None:
    folder = EngineFolder.load(tiny_engine)
    tokenizer = Tokenizer.load(folder.tokenizer_path)
    matcher = compiler.matcher(guide)
    for token_id in tokenizer.encode(expected, literal=True):
        assert token_id in allowed(matcher, folder.description.vocab_size)
        assert not set(allowed(matcher, folder.description.vocab_size)) & set(folder.description.end_token_ids)
        matcher.advance(token_id)
    assert set(allowed(matcher, folder.description.vocab_size)) == set(folder.description.end_token_ids)


def test_one_of_is_followed_as_any_of(compiler: GuideCompiler, tiny_engine: Path) -> None:
    schema = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    description = EngineFolder.load(tiny_engine).description
    first = allowed(compiler.matcher(Guide(GuideKind.JSON_SCHEMA, json.dumps(schema))), description.vocab_size)
    either = {"anyOf": schema["oneOf"]}
    same = allowed(compiler.matcher(Guide(GuideKind.JSON_SCHEMA, json.dumps(either))), description.vocab_size)
    assert first.tolist() == same.tolist()


def test_references_a_thousand_deep_do_not_fill_the_stack(compiler: GuideCompiler) -> None:
    links = {f"{number}": {"anyOf": [{"$ref": f"#/$defs/{number + 1}"}]} for number in range(4000)}
    schema = {"$defs": {**links, "4000": {"type": "null"}}, "$ref": "#/$defs/0"}
    asyncio.run(compiler.prepare(Guide(GuideKind.JSON_SCHEMA, json.dumps(schema))))


def test_a_guide_that_takes_too_long_is_refused_and_holds_up_nobody(tiny_engine: Path) -> None:
    folder = EngineFolder.load(tiny_engine)
    description = folder.description
    compiler = GuideCompiler(folder.tokenizer_path, description.vocab_size, description.end_token_ids, timeout_s=0.1)
    rules = range(300)
    slow = "start: a*\na: " + "|".join(f"b{n}" for n in rules) + "".join(f'\nb{n}: "x"* "y"* a?' for n in rules)

    async def turns_of_the_loop() -> int:
        refused = asyncio.ensure_future(compiler.prepare(Guide(GuideKind.GRAMMAR, slow)))
        turns = 0
        while not refused.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert "takes over 0.1 s" in str(refused.exception())
        return turns

    assert asyncio.run(turns_of_the_loop()) > 20
