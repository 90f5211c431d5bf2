"""Calls whose name stands alone on a line, at the start of a turn: GLM-4's and ChatGLM3's."""

import re
from dataclasses import dataclass

from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.json_values import json_arguments
from stylers.parsing.python_calls import keyword, keyword_arguments
from stylers.parsing.reader import Markers, Steps, ignore, markers

NAME = re.compile(r"\S*")
BLANKS = re.compile(r"[ \t]*")


@dataclass(frozen=True)
class NamedTurns(CallReader):
    """A name, a newline, then the arguments. `turn` opens another turn of the model in the same answer."""

    turn: str

    @property
    def markers(self) -> Markers:
        """Where a turn begins."""
        return markers(self.turn)

    def at_start(self, answer: Answer) -> Steps[None]:
        """Read the call that the answer may begin with."""
        reader = answer.reader
        reader.keep()
        yield from reader.space()
        name = yield from reader.word(NAME, answer.tools.begin_with)
        yield from reader.run(BLANKS, ignore)
        if name not in answer.tools or not (yield from reader.literal("\n")):
            answer.give_back()
        elif (yield from self.arguments_follow(answer)):
            answer.begin_call(name)
            yield from self.read_arguments(answer)
        else:
            answer.give_back()

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read another turn; its marker is no text."""
        yield from self.at_start(answer)

    def arguments_follow(self, answer: Answer) -> Steps[bool]:
        """Whether what follows the name's line is the beginning of arguments, or the end of the text."""
        yield from answer.reader.space()
        return (yield from answer.reader.peek()) in ("", "{")

    def read_arguments(self, answer: Answer) -> Steps[None]:
        """Read the arguments and give them out."""
        if (yield from json_arguments(answer.reader, answer.out.arguments, ())):
            answer.out.complete_call()


@dataclass(frozen=True)
class NamedCodeTurns(NamedTurns):
    """The arguments are Python: a code block with `tool_call(key=value, ...)`."""

    def arguments_follow(self, answer: Answer) -> Steps[bool]:
        """Whether the code block follows, or the text ends on the way to it."""
        for literal in ("```", "python", "tool_call("):
            if not (yield from answer.reader.spaced(literal)):
                return answer.reader.cut_inside(literal)
        return True

    def read_arguments(self, answer: Answer) -> Steps[None]:
        """Read the keywords and the end of the block."""
        key = yield from keyword(answer.reader)
        if key is not None and (yield from keyword_arguments(answer.reader, answer.out.arguments, key)):
            answer.out.complete_call()
        yield from answer.reader.closing("```")
