"""Passing JSON text on as it comes, without parsing it: brackets are balanced, strings are stepped over."""

import json
import re
from functools import lru_cache

from stylers.parsing.reader import STRING_RUN, Reader, Sink, Steps

SCALAR_RUN = re.compile(r"[^\s,:{}\[\]\"<`]*")
PARTNER = {"}": "{", "]": "["}


@lru_cache(maxsize=64)
def _outside(ends: tuple[str, ...]) -> re.Pattern[str]:
    """What needs no look: neither string, nor bracket, nor the first character of an end marker."""
    return re.compile('[^"{}\\[\\]' + re.escape("".join(end[0] for end in ends)) + "]*")


def json_arguments(reader: Reader, sink: Sink, ends: tuple[str, ...]) -> Steps[bool]:
    """Pass a call's arguments on, which should be an object. Return whether they are complete.

    They end with the bracket that balances the first, or before one of `ends` outside a string, or with the text,
    which leaves them incomplete. An object that was written as a JSON string is unwrapped.
    """
    first = yield from reader.peek()
    if first in ("{", "["):
        return (yield from bracketed(reader, sink, ends))
    pieces: list[str] = []
    if first == '"':
        complete = yield from _string(reader, pieces.append)
        sink(_unwrapped("".join(pieces)))
        return complete
    yield from reader.run(SCALAR_RUN, pieces.append)
    complete = (yield from reader.peek()) != ""
    sink("".join(pieces) or ("{}" if complete else ""))
    return complete


def json_value(reader: Reader, sink: Sink) -> Steps[None]:
    """Pass any JSON value on."""
    first = yield from reader.peek()
    if first in ("{", "["):
        yield from bracketed(reader, sink)
    elif first == '"':
        yield from _string(reader, sink)
    else:
        yield from reader.run(SCALAR_RUN, sink)


def bracketed(reader: Reader, sink: Sink, ends: tuple[str, ...] = (), opened: str = "") -> Steps[bool]:
    """Pass text on until its brackets, of which `opened` stand before it, are balanced. Return whether they were.

    A closing bracket counts whatever it is meant to close, unless it is one of `ends` and closes nothing.
    """
    outside = _outside(ends)
    depth = list(opened)
    while True:
        yield from reader.run(outside, sink)
        character = yield from reader.peek()
        if not character:
            return False
        if character == '"':
            if not (yield from _string(reader, sink)):
                return False
            continue
        closes = depth and PARTNER.get(character) == depth[-1]
        if not closes and (yield from _ends(reader, ends)):
            return True
        sink((yield from reader.characters(1)))
        if character in ("{", "["):
            depth.append(character)
        elif character in PARTNER:
            depth.pop()
            if not depth:
                return True


def _ends(reader: Reader, ends: tuple[str, ...]) -> Steps[bool]:
    for end in ends:
        if (yield from reader.ahead(end)):
            return True
    return False


def _string(reader: Reader, sink: Sink) -> Steps[bool]:
    """Pass a string on, quotes and escapes as they are. Return whether it was closed."""
    sink((yield from reader.characters(1)))
    while True:
        yield from reader.run(STRING_RUN, sink)
        character = yield from reader.characters(1)
        sink(character)
        if character != "\\":
            return character == '"'
        sink((yield from reader.characters(1)))


def _unwrapped(text: str) -> str:
    try:
        inner = json.loads(text)
        return inner if isinstance(json.loads(inner), dict) else text
    except (ValueError, TypeError, RecursionError):
        return text
