"""ReAct: the model writes its thought, then an action and its input, or a final answer, each on a labelled line.

Source: QwenLM/Qwen, openai_api.py and examples/react_prompt.md.
"""

import re
from dataclasses import dataclass

from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.json_values import json_arguments
from stylers.parsing.reader import Markers, Steps, ignore, markers

THOUGHT = "Thought:"
ACTION = "Action:"
ACTION_INPUT = "Action Input:"
OBSERVATION = "Observation:"
FINAL_ANSWER = "Final Answer:"
BLANKS = re.compile(r"[ \t]*")
NAME = re.compile(r"\S*")


@dataclass(frozen=True)
class ReactCalls(CallReader):
    """A thought before a call is content; before a final answer it is dropped."""

    @property
    def markers(self) -> Markers:
        """Where an action stands in an answer that began without a thought."""
        return markers(f"\n{ACTION}")

    def at_start(self, answer: Answer) -> Steps[None]:
        """Read thoughts and actions, as long as one follows the other."""
        reader = answer.reader
        while True:
            reader.keep()
            if (yield from reader.spaced(ACTION)):
                if not (yield from self._call(answer)):
                    return
            elif (yield from reader.literal(THOUGHT)):
                if not (yield from self._thought(answer)):
                    return
            else:
                if (yield from reader.literal(FINAL_ANSWER)):
                    reader.kept()
                    answer.out.markup()
                else:
                    answer.give_back()
                return

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read the action behind its label."""
        answer.reader.keep(marker)
        if (yield from self._call(answer)):
            yield from self.at_start(answer)

    def _thought(self, answer: Answer) -> Steps[bool]:
        """Read a thought and what follows it; False if that was no call."""
        reader, out = answer.reader, answer.out
        pieces: list[str] = []
        label = yield from reader.until(markers(f"\n{ACTION}", f"\n{FINAL_ANSWER}"), pieces.append)
        thought = "".join(pieces).strip()
        if label == f"\n{ACTION}":
            return (yield from self._call(answer, thought))
        reader.kept()
        out.markup()
        if label is None:
            out.content(thought)
        return False

    def _call(self, answer: Answer, thought: str = "") -> Steps[bool]:
        """Read a call behind the label of its name; False if it is none, and then content."""
        reader, out = answer.reader, answer.out
        yield from reader.run(BLANKS, ignore)
        name = yield from reader.word(NAME, answer.tools.begin_with)
        if name not in answer.tools or not (yield from reader.spaced(ACTION_INPUT)):
            answer.give_back()
            return False
        if thought:
            out.content(thought)
        answer.begin_call(name)
        yield from reader.space()
        if (yield from json_arguments(reader, out.arguments, (f"\n{OBSERVATION}",))):
            out.complete_call()
        yield from reader.spaced(OBSERVATION)
        return True
