"""Calls that are a JSON object with a key for the name, in tags, in a list or bare; and JSON behind a header."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.json_values import bracketed, json_arguments, json_value
from stylers.parsing.reader import Markers, Steps, ignore, markers

STRAY_CLOSERS = re.compile(r"[\s}]*")
ARGUMENT_KEYS = ("arguments", "parameters")
OTHER_KEYS = ("name", "type", "id")


class Outcome(Enum):
    """What an object turned out to be."""

    CALL = auto()
    UNKNOWN = auto()  # it names no tool of the request; the rest of it is not read
    NO_CALL = auto()  # it is no call, or the text ended before that was clear


@dataclass(slots=True)
class CallObject:
    """Reads one `{"name": ..., "arguments": {...}}`, whose keys may come in any order.

    ends: the markers that end it. strict: any other key shows that it is no call. doubled: there may be two braces,
    as early prompts of Qwen 2.5 showed it.
    """

    answer: Answer
    ends: tuple[str, ...] = ()
    strict: bool = False
    doubled: bool = False
    name: str | None = None
    arguments: list[str] | None = None  # as long as there is no name to give them to
    complete: bool = False

    def read(self) -> Steps[Outcome]:
        """Read the object, the reader having kept what stands before it; give the call out."""
        reader = self.answer.reader
        if not (yield from reader.spaced("{")):
            return Outcome.NO_CALL
        if self.doubled:
            yield from reader.spaced("{")
        while (key := (yield from self._key())) is not None:
            if key == "name" and self.name is None:
                if not (yield from self._read_name()):
                    return Outcome.UNKNOWN
            elif key in ARGUMENT_KEYS and not self.complete:
                yield from self._read_arguments()
            elif self.strict and key not in OTHER_KEYS:
                return Outcome.NO_CALL
            else:
                yield from json_value(reader, ignore)
            if not (yield from reader.spaced(",")):
                break
        closed = yield from reader.spaced("}")
        if self.name is None:
            return Outcome.NO_CALL
        yield from self._finish(closed)
        return Outcome.CALL

    def _key(self) -> Steps[str | None]:
        reader = self.answer.reader
        yield from reader.space()
        key = yield from reader.json_string()
        if key is None or not (yield from reader.spaced(":")):
            return None
        yield from reader.space()
        return key

    def _read_name(self) -> Steps[bool]:
        name = yield from self.answer.reader.json_string()
        if name is None or name not in self.answer.tools:
            return False
        self.name = name
        self.answer.begin_call(name)
        self.answer.out.arguments("".join(self.arguments or ()))
        return True

    def _read_arguments(self) -> Steps[None]:
        if self.name is None:
            self.arguments = []
            self.complete = yield from json_arguments(self.answer.reader, self.arguments.append, self.ends)
        else:
            self.complete = yield from json_arguments(self.answer.reader, self.answer.out.arguments, self.ends)

    def _finish(self, closed: bool) -> Steps[None]:
        """The name is out; see that the call gets its end, whatever stands before it."""
        reader, out = self.answer.reader, self.answer.out
        if not self.complete and not closed and self.ends:
            closed = (yield from reader.until(markers(*self.ends), ignore)) is not None
        if closed and not self.complete:
            out.arguments("{}")
        if closed or self.complete:
            out.complete_call()


@dataclass(frozen=True)
class TaggedObjects(CallReader):
    """Objects between tags, each a call: `<tool_call>{...}</tool_call>`. `then` must follow the opening tag."""

    begin: str
    end: str
    then: str = ""

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin)

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read one object and its closing tag."""
        answer.reader.keep(marker)
        if self.then and not (yield from answer.reader.spaced(self.then)):
            answer.give_back()
            return
        if (yield from CallObject(answer, (self.end,), doubled=True).read()) is not Outcome.CALL:
            answer.give_back()
            return
        yield from answer.reader.run(STRAY_CLOSERS, ignore)
        yield from answer.reader.closing(self.end)


@dataclass(frozen=True)
class BareObjects(CallReader):
    """Objects that stand for themselves at the start of the answer or behind `marker`, several behind `;`."""

    marker: str

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.marker)

    def at_start(self, answer: Answer) -> Steps[None]:
        """Read the objects or the list of them that the answer begins with."""
        yield from self._read("", answer)

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read the objects or the list of them behind the marker."""
        yield from self._read(marker, answer)

    def _read(self, before: str, answer: Answer) -> Steps[None]:
        reader = answer.reader
        reader.keep(before)
        if (yield from reader.spaced("[")):
            yield from self.read_list(answer)
            return
        while (yield from CallObject(answer, strict=True).read()) is Outcome.CALL:
            reader.keep()
            if not (yield from reader.spaced(";")):
                break
        answer.give_back()

    def read_list(self, answer: Answer) -> Steps[None]:
        """Read a list behind its bracket, which the reader has kept."""
        yield from object_list(answer, strict=True)


@dataclass(frozen=True)
class ObjectList(CallReader):
    """A list of objects behind a marker, each a call: `functools[{...}, {...}]`."""

    begin: str

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin)

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read the list."""
        answer.reader.keep(marker)
        if (yield from answer.reader.spaced("[")):
            yield from object_list(answer)
        else:
            answer.give_back()


def object_list(answer: Answer, *, strict: bool = False) -> Steps[None]:
    """Read a list of calls behind its `[`, which the reader has kept. What is no call in it is content."""
    reader, calls_before = answer.reader, answer.out.num_calls
    while True:
        outcome = yield from CallObject(answer, ("]",), strict).read()
        if outcome is Outcome.NO_CALL:
            break
        if outcome is Outcome.UNKNOWN:
            answer.give_back_element(calls_before)
            yield from bracketed(reader, answer.out.content, opened="{")
        else:
            yield from reader.run(STRAY_CLOSERS, ignore)
        reader.keep()
        if not (yield from reader.spaced(",")):
            if (yield from reader.spaced("]")) and answer.out.num_calls > calls_before:
                reader.kept()
                return
            break
    answer.give_back()


def plain_name(header: str) -> tuple[str, str | None]:
    """Take the header for the name of the function; the model gives no id."""
    return header, None


@dataclass(frozen=True)
class HeadedCalls(CallReader):
    """A header that holds the name, then JSON: `<call>NAME<arguments>{...}<end>`.

    section: tags around all calls. before_name and before_arguments stand around the header, ends behind the
    arguments, in this order. header: a starred class of characters; longest: how much longer than a name it may be.
    """

    begin: str
    before_arguments: tuple[str, ...]
    ends: tuple[str, ...] = ()
    section: tuple[str, str] | None = None
    before_name: str = ""
    header: re.Pattern[str] = re.compile(r"[^\s<\[{`]*")
    longest: int = 0
    name_and_id: Callable[[str], tuple[str, str | None]] = plain_name

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin, *(self.section or ()))

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read one call, or the tags of the section."""
        if self.section and marker == self.section[1]:
            if not answer.out.num_calls:
                answer.out.content(marker)
            return
        answer.reader.keep(marker)
        if marker != self.begin and not (yield from answer.reader.spaced(self.begin)):
            answer.give_back()
            return
        if not (yield from self.read(answer)):
            answer.give_back()

    def read(self, answer: Answer) -> Steps[bool]:
        """Read a call from its header on; False if it is none."""
        reader, out = answer.reader, answer.out
        if not (yield from reader.spaced(self.before_name)):
            return False
        header = yield from reader.word(self.header, lambda text: answer.tools.allow(len(text) - self.longest))
        name, call_id = self.name_and_id(header)
        yield from self.between(answer)
        for literal in self.before_arguments:
            if not (yield from reader.spaced(literal)):
                return False
        if name not in answer.tools:
            return False
        answer.begin_call(name, call_id)
        yield from reader.space()
        if (yield from json_arguments(reader, out.arguments, self.ends)):
            out.complete_call()
        for end in self.ends:
            yield from reader.closing(end)
        if self.section and not (yield from reader.literal(self.section[1])):
            reader.cut_inside(self.section[1])
        return True

    def between(self, answer: Answer) -> Steps[None]:
        """Read what a family may write between the header and the arguments."""
        return
        yield
