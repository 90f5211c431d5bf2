"""Calls written as Python: `[name(key=value, ...), ...]`."""

import json
import re
from dataclasses import dataclass

from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.json_calls import BareObjects, Outcome, object_list
from stylers.parsing.literals import PYTHON_STRINGS, Rewriter
from stylers.parsing.reader import Markers, Reader, Sink, Steps, ignore, markers

NAME = re.compile(r"[\w./\-]*")
MAX_NAME_CHARS = 64  # of a function, as in OpenAI's API
MAX_KEY_CHARS = 1000


def keyword_arguments(reader: Reader, sink: Sink, key: str) -> Steps[bool]:
    """Pass keyword arguments on as a JSON object; the first `key` and its equals sign, if any, have been read.

    Returns whether they were closed.
    """
    opening = "{"
    while key:
        sink(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        opening = ", "
        if not (yield from Rewriter(reader, sink, PYTHON_STRINGS).value()):
            return False
        key = ""
        if (yield from reader.spaced(",")):
            key = (yield from keyword(reader)) or ""
    if not (yield from reader.spaced(")")):
        return False
    sink("{}" if opening == "{" else "}")
    return True


def keyword(reader: Reader) -> Steps[str | None]:
    """Read `key=` and return the key; an empty one before a closing bracket; None where something else stands."""
    if (yield from reader.spaced("")) and (yield from reader.peek()) == ")":
        return ""
    key = yield from reader.word(NAME, lambda text: len(text) <= MAX_KEY_CHARS)
    return key if key and (yield from reader.spaced("=")) else None


def python_call(answer: Answer) -> Steps[Outcome]:
    """Read `name(key=value, ...)`, the reader having kept what stands before it.

    Positional values make it no call, unless the text ends before it is known whether they are.
    """
    reader, out = answer.reader, answer.out
    yield from reader.space()
    name = yield from reader.word(NAME, lambda text: len(text) <= MAX_NAME_CHARS)
    if not (yield from reader.literal("(")):
        return Outcome.NO_CALL
    key = yield from keyword(reader)
    if key is None and (yield from reader.peek()):
        return Outcome.NO_CALL
    if name not in answer.tools:
        yield from keyword_arguments(reader, ignore, key or "")
        return Outcome.UNKNOWN
    answer.begin_call(name)
    if (yield from keyword_arguments(reader, out.arguments, key or "")):
        out.complete_call()
    return Outcome.CALL


def python_list(answer: Answer) -> Steps[None]:
    """Read a list of calls behind its `[`, which the reader has kept. What is no call in it is content."""
    reader, calls_before = answer.reader, answer.out.num_calls
    while True:
        outcome = yield from python_call(answer)
        if outcome is Outcome.NO_CALL:
            break
        if outcome is Outcome.UNKNOWN:
            answer.give_back_element(calls_before)
        reader.keep()
        if not (yield from reader.spaced(",")):
            if (yield from reader.spaced("]")) and answer.out.num_calls > calls_before:
                reader.kept()
                return
            break
    answer.give_back()


@dataclass(frozen=True)
class BareCalls(BareObjects):
    """Python lists or JSON objects that stand for themselves at the start of the answer or behind `marker`."""

    def read_list(self, answer: Answer) -> Steps[None]:
        """Read a list of either kind."""
        yield from answer.reader.space()
        if (yield from answer.reader.peek()) == "{":
            yield from object_list(answer, strict=True)
        else:
            yield from python_list(answer)


@dataclass(frozen=True)
class CodeBlockCalls(CallReader):
    """A Python list at the start of the answer, or calls in a code block, one a line, behind `begin`."""

    begin: str
    end: str = "```"

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin)

    def at_start(self, answer: Answer) -> Steps[None]:
        """Read the list that the answer begins with."""
        answer.reader.keep()
        if (yield from answer.reader.spaced("[")):
            yield from python_list(answer)
        else:
            answer.give_back()

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read a code block."""
        reader, calls_before = answer.reader, answer.out.num_calls
        reader.keep(marker)
        if (yield from reader.spaced("[")):
            yield from python_list(answer)
            reader.keep()
        else:
            while (outcome := (yield from python_call(answer))) is not Outcome.NO_CALL:
                if outcome is Outcome.UNKNOWN:
                    answer.give_back_element(calls_before)
                reader.keep()
        yield from reader.closing(self.end)
        text = reader.kept()
        if answer.out.num_calls == calls_before or not self.end.startswith(text.strip()):
            reader.keep(text)
            answer.give_back()
