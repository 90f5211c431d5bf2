"""Guides to grammars of llguidance: compiled once, cached by content, one matcher per sequence.

Source: llguidance (github.com/guidance-ai/llguidance), an Earley parser over a lexer of regex derivatives that fills a
bit per token of the vocabulary.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from threading import Lock

import llguidance
import llguidance.numpy
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark
from numpy.typing import NDArray

from engines.call_grammar import call_grammar, lark_literal
from engines.contract import Guide, GuideKind
from engines.deep_thread import run_deep
from engines.errors import GuideError

MAX_SOURCE_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_INTERSECTIONS = 64
"""So many conditions may hold at once (`&` in a grammar, the parts of `allOf`): with some hundreds of them neither
compiling nor a single mask comes to an end."""
CACHE_SIZE = 256
COMPILE_TIMEOUT_S = 2.0
MAX_COMPILING = 8
"""So many guides compile at once; those that take too long count until they are done."""
MAX_MESSAGE = 300
MESSAGE_TAIL = re.compile(r"(<state>|\n *\d+ \| ).*", re.DOTALL)
JSON_FAULT = "at 1(8): failed to compile JSON schema: "  # the grammar around a schema is ours

JSON_OPTIONS = {"whitespace_pattern": r"[ ]?|\n[ ]{0,32}", "coerce_one_of": True}
"""Blanks between the tokens of JSON are few: a small model that may write them without end does so.

`oneOf` is followed as `anyOf`: that no second alternative holds is not seen to.
"""

NO_FORCING = '\n%llguidance {"no_forcing": true}'
"""Text that the grammar leaves no choice about is not cut into tokens by the tokenizer: it would see control tokens."""


class GuideMatcher:
    """Where one sequence stands in its grammar. Used by one thread at a time, `give_up` and `error` excepted."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = llguidance.numpy.allocate_token_bitmask(1, vocab_size)
        self._given_up: str | None = None

    @property
    def error(self) -> str | None:
        """Why the grammar cannot go on, if it cannot: a limit of the parser was hit, or it was given up."""
        if self._given_up is not None:
            return self._given_up
        return _one_line(self._matcher.get_error()) if self._matcher.is_error() else None

    def give_up(self, reason: str) -> None:
        """Leave the matcher to a thread that may never be done with it."""
        self._given_up = reason

    def fill(self) -> None:
        """Find out which tokens the grammar allows next. Most take microseconds; nothing stops one that takes hours."""
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._bits)

    def apply(self, logits: NDArray[np.float32]) -> None:
        """Set to minus infinity the logits [vocab_size] of all tokens that `fill` has not found."""
        if self.error is not None:
            return  # the sequence is about to fail with it
        allowed = np.unpackbits(self._bits.view(np.uint8)[0], count=len(logits), bitorder="little")
        logits[allowed == 0] = -np.inf

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Do both at once."""
        self.fill()
        self.apply(logits)

    def advance(self, token_id: int) -> None:
        """Take note of the token that was sampled."""
        if self._given_up is None and not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)


class GuideCompiler:
    """Compiles guides for one tokenizer. Thread-safe."""

    def __init__(
        self,
        tokenizer_path: Path,
        vocab_size: int,
        end_token_ids: tuple[int, ...],
        *,
        timeout_s: float = COMPILE_TIMEOUT_S,
    ) -> None:
        self._tokenizer_path = tokenizer_path
        self._vocab_size = vocab_size
        self._end_token_ids = end_token_ids
        self._timeout_s = timeout_s
        self._cache: OrderedDict[Guide, llguidance.LLMatcher] = OrderedDict()
        self._lock = Lock()
        self._may_compile = asyncio.Semaphore(MAX_COMPILING)

    async def prepare(self, guide: Guide) -> None:
        """Compile a guide off the loop and keep it. Raises GuideError, also for one that takes too long.

        The parser's recursion is as deep as a source wants it: a usual thread's stack would be too small.
        """
        if guide in self._cache:
            return
        await asyncio.to_thread(lambda: self._tokenizer)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._may_compile.acquire()
                compiling = run_deep(partial(self.matcher, guide))
                compiling.add_done_callback(self._note_compiled)
                await asyncio.shield(compiling)
        except TimeoutError as exc:
            raise GuideError(f"the {guide.kind} takes over {self._timeout_s:g} s to compile", "guide") from exc

    def _note_compiled(self, compiling: "asyncio.Future[GuideMatcher]") -> None:
        self._may_compile.release()
        compiling.exception()  # nobody may have waited so long

    def matcher(self, guide: Guide) -> GuideMatcher:
        """Return a matcher at the grammar's start. Raises GuideError where the guide does not compile."""
        with self._lock:
            start = self._cache.get(guide)
            if start is not None:
                self._cache.move_to_end(guide)
        if start is None:
            start = self._compile(guide)
            with self._lock:
                self._cache[guide] = start
                if len(self._cache) > CACHE_SIZE:
                    self._cache.popitem(last=False)
        return GuideMatcher(start.deep_copy(), self._vocab_size)

    def lark(self, guide: Guide) -> str:
        """Write a guide as a grammar in Lark. Raises ValueError, KeyError or RecursionError."""
        grammar = self._calls(guide.source) if guide.kind is GuideKind.CALL_FORMAT else _LARK[guide.kind](guide.source)
        return grammar + NO_FORCING if self._spells_control_token(guide) else grammar

    def _calls(self, source: str) -> str:
        read = json.loads(source)
        _check_size(read)
        return call_grammar(read, partial(lark_literal, control_tokens=self._control_tokens), JSON_OPTIONS)

    def _spells_control_token(self, guide: Guide) -> bool:
        """Whether the text of a control token is a literal of the guide, where it is text and not the token."""
        text = guide.source
        if guide.kind in (GuideKind.JSON_SCHEMA, GuideKind.CHOICE):
            text = json.dumps(json.loads(text), ensure_ascii=False)
        elif guide.kind is GuideKind.CALL_FORMAT:  # whose own marks are the tokens
            text = json.dumps(json.loads(text)["tools"], ensure_ascii=False)
        text = text.replace("\\", "")  # escapes
        return any(token in text for token in self._control_tokens)

    @cached_property
    def _control_tokens(self) -> dict[str, int]:
        """Texts that the grammar must ask for as tokens: spelled out they would be something else."""
        added = json.loads(self._tokenizer_path.read_text(encoding="utf-8"))["added_tokens"]
        return {token["content"]: token["id"] for token in added if token["special"]}

    @cached_property
    def _tokenizer(self) -> llguidance.LLTokenizer:
        """Made when the first guide comes: it takes half a second that most starts can do without."""
        text = self._tokenizer_path.read_text(encoding="utf-8")
        return llguidance.LLTokenizer(text, n_vocab=self._vocab_size, eos_token=list(self._end_token_ids))

    def _compile(self, guide: Guide) -> llguidance.LLMatcher:
        if len(guide.source.encode()) > MAX_SOURCE_BYTES:
            raise GuideError(f"the {guide.kind} is larger than {MAX_SOURCE_BYTES} bytes", "guide")
        try:
            grammar = llguidance.LLMatcher.grammar_from_lark(self.lark(guide))
        except (ValueError, KeyError, RecursionError) as exc:
            raise GuideError(f"the {guide.kind} is not valid: {exc}", "guide") from exc
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise GuideError(f"the {guide.kind} does not compile: {_explain(matcher.get_error(), guide)}", "guide")
        self._try_to_begin(GuideMatcher(matcher.deep_copy(), self._vocab_size), guide)
        return matcher

    def _try_to_begin(self, matcher: GuideMatcher, guide: Guide) -> None:
        """Look for a first token: some grammars that no text satisfies compile, and so do some beyond all limits."""
        matcher.mask(np.zeros(self._vocab_size, np.float32))
        if matcher.error:
            raise GuideError(f"the {guide.kind} cannot be followed: {matcher.error}", "guide")


def _choice(source: str) -> str:
    """Turn a JSON list of texts into a grammar. Raises ValueError."""
    choices = json.loads(source)
    if not (isinstance(choices, list) and choices and all(isinstance(choice, str) and choice for choice in choices)):
        raise ValueError("a choice is a list of texts that are not empty")
    # One lexeme: a rule with an alternative each would soon hit the parser's limit on items.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def _grammar(source: str) -> str:
    """Turn GBNF into Lark. Raises ValueError."""
    _check_intersections(source.count("&"))
    try:
        return str(any_to_lark(source))
    except Exception as exc:  # the converter raises nothing more exact
        raise ValueError(str(exc)) from exc


def _json_object(source: str) -> str:
    return _json_schema('{"type": "object"}')


def _json_schema(source: str) -> str:
    schema = json.loads(source)
    _check_size(schema)
    if isinstance(schema, bool):  # which are schemas as well: any value, and none
        schema = {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise ValueError("a schema is an object")
    return f"start: %json {json.dumps({**schema, 'x-guidance': JSON_OPTIONS})}"


def _regex(source: str) -> str:
    grammar = json.loads(llguidance.LLMatcher.grammar_from_regex(source))
    return str(grammar["grammars"][0]["lark_grammar"])


_LARK: dict[GuideKind, Callable[[str], str]] = {
    GuideKind.CHOICE: _choice,
    GuideKind.GRAMMAR: _grammar,
    GuideKind.JSON_OBJECT: _json_object,
    GuideKind.JSON_SCHEMA: _json_schema,
    GuideKind.REGEX: _regex,
}


def _check_size(schema: object) -> None:
    _check_depth(schema)
    _check_intersections(sum(len(parts) - 1 for parts in _all_of(schema) if parts))


def _check_intersections(number: int) -> None:
    if number > MAX_INTERSECTIONS:
        raise ValueError(f"more than {MAX_INTERSECTIONS} conditions are to hold at once")


def _all_of(schema: object) -> Iterator[list[object]]:
    if isinstance(schema, dict):
        parts = schema.get("allOf")
        yield from [parts] if isinstance(parts, list) else []
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _all_of(item)


def _check_depth(schema: object, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(schema, dict):
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            _check_depth(item, depth + 1)


def _explain(message: str, guide: Guide) -> str:
    """Put the parser's message into one line, with the places of the schemas' keywords that it names."""
    text = _one_line(message)
    named = re.search(r"Unimplemented keys: (\[.*?\])", text)
    if guide.kind not in (GuideKind.JSON_SCHEMA, GuideKind.CALL_FORMAT) or named is None:
        return text
    keywords = set(json.loads(named[1]))
    return f"not supported: {', '.join(_places(json.loads(guide.source), keywords, '#'))}"


def _one_line(message: str) -> str:
    """Leave out the grammar and the state of the parser that messages end with."""
    return " ".join(MESSAGE_TAIL.sub("", message).removeprefix(JSON_FAULT).split())[:MAX_MESSAGE]


def _places(schema: object, keywords: set[str], path: str) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (f"{path}/{keyword}" for keyword in schema if keyword in keywords)
        for name, value in schema.items():
            yield from _places(value, keywords, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _places(value, keywords, f"{path}/{index}")
