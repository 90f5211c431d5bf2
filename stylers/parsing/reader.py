"""The text of an answer, as far as it has arrived, and the primitives that read it."""

import json
import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]  # pauses for more text; its return value is the result
Sink: TypeAlias = Callable[[str], None]

SPACE = re.compile(r"\s*")
STRING_RUN = re.compile(r'[^"\\]*')


class Markers:
    """Literal strings to look for, and the beginnings of them that may stand at the end of the text so far."""

    def __init__(self, *markers: str) -> None:
        self.whole = frozenset(markers)
        wholes = [re.escape(marker) for marker in sorted(markers, key=len, reverse=True)]
        beginnings = [_beginnings(marker) for marker in markers]
        self._pattern = re.compile("|".join([*wholes, *beginnings]) or r"(?!)")
        self.search = self._pattern.search


@lru_cache(maxsize=256)
def markers(*literals: str) -> Markers:
    """Return the markers for some literals, compiled once."""
    return Markers(*literals)


def _beginnings(marker: str) -> str:
    """A pattern for each proper beginning of `marker`, at the end of the text: `<(?:t(?:o)?)?` for `<too`."""
    nested = ""
    for character in reversed(marker[1:-1]):
        nested = f"(?:{re.escape(character)}{nested})?"
    return rf"{re.escape(marker[0])}{nested}\Z" if len(marker) > 1 else r"(?!)"


class Reader:
    """A cursor in a text that grows. What is read can be kept, to be given back as plain text."""

    __slots__ = ("_at", "_cut_short", "_keeping_from", "_kept", "_text", "ended", "lost_markup")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._kept: list[str] = []
        self._keeping_from: int | None = None
        self._cut_short = False
        self.ended = False
        self.lost_markup = False
        """Whether the text was cut inside what would have become markup: that is shown to nobody."""

    def add(self, text: str) -> None:
        """Append what arrived."""
        if self._keeping_from is not None:
            self._kept.append(self._text[self._keeping_from : self._at])
            self._keeping_from = 0
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self, *, cut_short: bool) -> None:
        """No more text will come; `cut_short`: more would have, had there been no limit."""
        self.ended = True
        self._cut_short = cut_short

    def keep(self, before: str = "") -> None:
        """From here on keep what is read; `before` stands in front of it."""
        self._kept = [before]
        self._keeping_from = self._at

    def kept(self) -> str:
        """Stop keeping and return what was read since `keep()`."""
        assert self._keeping_from is not None
        text = "".join(self._kept) + self._text[self._keeping_from : self._at]
        self._kept, self._keeping_from = [], None
        return text

    def lose_markup(self) -> bool:
        """If the text was cut short, leave out what is kept and all that is left: who waited for more, waited for it.

        Return whether it was.
        """
        if not self._cut_short:
            return False
        self.lost_markup |= bool(self.kept().strip()) or self._at < len(self._text)
        self._at = len(self._text)
        return True

    def until(self, marks: Markers, sink: Sink, cut: Sink | None = None) -> Steps[str | None]:
        """Pass the text before the next marker on, as it comes. Return the marker, which is read, or None at the end.

        What may be the beginning of a marker is held back; nothing else is. One that the text's end has cut goes to
        `cut`, if there is one; else it is left out where the text was cut short.
        """
        while True:
            text, at = self._text, self._at
            found = marks.search(text, at)
            stop = found.start() if found else len(text)
            if stop > at:
                self._at = stop
                sink(text[at:stop])
            if found and found.group() in marks.whole:
                self._at = found.end()
                return found.group()
            if self.ended:
                self._at = len(text)
                if stop < len(text):
                    self._end_inside_marker(text[stop:], sink, cut)
                return None
            yield

    def _end_inside_marker(self, beginning: str, sink: Sink, cut: Sink | None) -> None:
        if cut is None and self._cut_short:
            self.lost_markup = True
        else:
            (cut or sink)(beginning)

    def ahead(self, text: str) -> Steps[bool]:
        """Whether `text` comes next; it is not read."""
        while not self._text.startswith(text, self._at):
            if self.ended or not text.startswith(self._text[self._at :]):
                return False
            yield
        return True

    def literal(self, text: str) -> Steps[bool]:
        """Read `text` if it is what comes next."""
        found = yield from self.ahead(text)
        if found:
            self._at += len(text)
        return found

    def cut_inside(self, text: str) -> bool:
        """Whether the text has ended on the way to `text`; what there is of it is read."""
        if not self.ended or not text.startswith(self._text[self._at :]):
            return False
        self._at = len(self._text)
        return True

    def closing(self, text: str) -> Steps[bool]:
        """Read blanks, then `text` or as much of it as the text's end has left; True if either stood there."""
        return (yield from self.spaced(text)) or self.cut_inside(text)

    def spaced(self, text: str) -> Steps[bool]:
        """Read blanks, then `text` if it is what comes next."""
        yield from self.space()
        return (yield from self.literal(text))

    def peek(self) -> Steps[str]:
        """Return the next character without reading it; at the end, an empty string."""
        while self._at == len(self._text) and not self.ended:
            yield
        return self._text[self._at : self._at + 1]

    def space(self) -> Steps[None]:
        """Read blanks and newlines."""
        yield from self.run(SPACE, ignore)

    def run(self, pattern: re.Pattern[str], sink: Sink) -> Steps[None]:
        """Read as long as `pattern`, a starred class of characters, goes on."""
        while True:
            found = pattern.match(self._text, self._at)
            assert found is not None
            if found.end() > self._at:
                self._at = found.end()
                sink(found.group())
            if self._at < len(self._text) or self.ended:
                return
            yield

    def word(self, pattern: re.Pattern[str], fits: Callable[[str], bool]) -> Steps[str]:
        """Read a run of characters if it `fits`; else, as soon as its beginning does not, the result is empty."""
        while True:
            found = pattern.match(self._text, self._at)
            assert found is not None
            if not fits(found.group()):
                return ""
            if found.end() < len(self._text) or self.ended:
                self._at = found.end()
                return found.group()
            yield

    def characters(self, count: int) -> Steps[str]:
        """Read `count` characters, fewer at the end."""
        while len(self._text) - self._at < count and not self.ended:
            yield
        text = self._text[self._at : self._at + count]
        self._at += len(text)
        return text

    def json_string(self) -> Steps[str | None]:
        """Read a JSON string and return its value; None where there is none, or it is broken or cut."""
        if not (yield from self.literal('"')):
            return None
        pieces = ['"']
        while True:
            yield from self.run(STRING_RUN, pieces.append)
            character = yield from self.characters(1)
            pieces.append(character)
            if character != "\\":
                break
            pieces.append((yield from self.characters(1)))
        try:
            value = json.loads("".join(pieces), strict=False)
        except ValueError:
            return None
        return str(value)


def ignore(text: str) -> None:
    """Leave text out."""
