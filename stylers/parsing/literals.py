"""Rewriting literals that are not JSON (Python's, Gemma's) as JSON, token by token, while they arrive."""

import json
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import TypeAlias

from stylers.parsing.reader import Reader, Sink, Steps, ignore, markers

OPENING = {"[": "[", "(": "[", "{": "{"}
CLOSING = {"[": "]", "{": "}"}
CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
QUOTED_RUN = {quote: re.compile(rf"[^{quote}\\]*") for quote in "'\""}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
QUOTES = "\\\"'"

StringReader: TypeAlias = Callable[[Reader, Sink], Steps[bool]]  # reads a string; True if there is one and it is closed


def json_text(text: str) -> str:
    """Return text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class Rewriter:
    """Reads one literal and passes it on as JSON. `strings`: how to read a string, by its first character."""

    def __init__(self, reader: Reader, sink: Sink, strings: Mapping[str, StringReader]) -> None:
        self._reader = reader
        self._sink = sink
        self._strings = strings
        self._word_run = re.compile(r"[^\s,:()\[\]{}" + "".join(strings) + "]*")
        self._open: list[str] = []
        self._comma = False
        self._key_next = False

    def value(self) -> Steps[bool]:
        """Read up to the comma or bracket behind the value. True if there is one."""
        while True:
            yield from self._reader.space()
            character = yield from self._reader.peek()
            if not character or (not self._open and character in ",)]}"):
                return bool(character)
            if not (yield from self._token(character)):
                return False

    def inside(self, bracket: str) -> Steps[bool]:
        """Read on behind an opening bracket, up to and with the one that closes it. True if there is one."""
        self._begin(bracket)
        while self._open:
            yield from self._reader.space()
            character = yield from self._reader.peek()
            if not character or not (yield from self._token(character)):
                return False
        return True

    def _token(self, character: str) -> Steps[bool]:
        if character in self._strings:
            self._separate()
            return (yield from self._strings[character](self._reader, self._sink))
        if character in "[{()]},:":
            yield from self._reader.characters(1)
            self._punctuation(character)
            return True
        word: list[str] = []
        yield from self._reader.run(self._word_run, word.append)
        if (yield from self._reader.peek()):  # a word that the text's end has cut may be anything
            self._separate()
            is_key = self._key_next and bool(self._open) and self._open[-1] == "{"
            self._sink(json.dumps("".join(word), ensure_ascii=False) if is_key else word_as_json("".join(word)))
        return True

    def _punctuation(self, character: str) -> None:
        if character in OPENING:
            self._separate()
            self._begin(OPENING[character])
        elif character == ",":
            self._comma = self._key_next = True
        elif character == ":":
            self._sink(": ")
            self._key_next = False
        else:
            self._comma = False
            self._sink(CLOSING[self._open.pop()])

    def _begin(self, bracket: str) -> None:
        self._open.append(bracket)
        self._sink(bracket)
        self._key_next = True

    def _separate(self) -> None:
        if self._comma:
            self._sink(", ")
            self._comma = False


def word_as_json(word: str) -> str:
    """Write an unquoted word as JSON: a constant, a number, else as text."""
    if word in CONSTANTS:
        return CONSTANTS[word]
    if NUMBER.fullmatch(word):
        return word
    for read in (lambda text: int(text, 0), float):
        try:
            number = read(word)
        except ValueError:
            continue
        if isfinite(number):
            return json.dumps(number)
    return json.dumps(word, ensure_ascii=False)


def python_string(reader: Reader, sink: Sink) -> Steps[bool]:
    """Read a Python string in any of its quotes and pass it on as a JSON string."""
    quote = yield from reader.peek()
    closing = quote * 3 if (yield from reader.ahead(quote * 3)) else quote
    yield from reader.literal(closing)
    sink('"')
    while True:
        yield from reader.run(QUOTED_RUN[quote], lambda text: sink(json_text(text)))
        character = yield from reader.peek()
        if not character:
            return False
        if (yield from reader.literal(closing)):
            sink('"')
            return True
        yield from reader.characters(1)
        if character == "\\":
            sink((yield from _escape(reader)))
        else:
            sink(json_text(character))


def _escape(reader: Reader) -> Steps[str]:
    """Read what follows a backslash and return it as it stands in a JSON string."""
    character = yield from reader.characters(1)
    if character in HEX_ESCAPES:
        digits = yield from reader.characters(HEX_ESCAPES[character])
        try:
            code = int(digits, 16)
            return f"\\u{code:04x}" if code < 0x10000 else json_text(chr(code))
        except (ValueError, OverflowError):
            return json_text(f"\\{character}{digits}")
    if character in ESCAPES:
        return json_text(ESCAPES[character])
    return json_text(character if character in QUOTES else f"\\{character}")


def marked_string(mark: str) -> StringReader:
    """Return a reader of strings between two equal marks, without escapes."""

    def read(reader: Reader, sink: Sink) -> Steps[bool]:
        if not (yield from reader.literal(mark)):
            return False
        sink('"')
        closed = yield from reader.until(markers(mark), lambda text: sink(json_text(text)), ignore)
        if closed:
            sink('"')
        return closed is not None

    return read


PYTHON_STRINGS: Mapping[str, StringReader] = {"'": python_string, '"': python_string}
