"""Gemma 4's calls: `call:NAME{key:<|"|>text<|"|>,other:1}` between tags."""

import re
from dataclasses import dataclass

from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.literals import Rewriter, marked_string
from stylers.parsing.reader import Markers, Steps, ignore, markers

NAME = re.compile(r"[^\s{<]*")
STRING = '<|"|>'
STRINGS = {"<": marked_string(STRING)}


@dataclass(frozen=True)
class GemmaCalls(CallReader):
    """Keys are bare words, strings stand between marks of their own, anything else is as in JSON."""

    begin: str
    end: str

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin)

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read one call and its closing tag."""
        reader, out = answer.reader, answer.out
        reader.keep(marker)
        yield from reader.spaced("call:")
        name = yield from reader.word(NAME, answer.tools.begin_with)
        if name not in answer.tools or not (yield from reader.literal("{")):
            answer.give_back()
            return
        answer.begin_call(name)
        complete = yield from Rewriter(reader, out.arguments, STRINGS).inside("{")
        if complete:
            yield from reader.closing(self.end)
        else:  # what follows is no literal: it belongs to the call up to its end
            complete = (yield from reader.until(markers(self.end), ignore)) is not None
        if complete:
            out.complete_call()
