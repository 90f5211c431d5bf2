"""Harmony, the message format of gpt-oss: every message has a header that says its channel and its recipient.

Source: openai/harmony, docs/format.md.
"""

import re
from dataclasses import dataclass

from stylers.parsing.answer import Answer
from stylers.parsing.json_values import json_arguments
from stylers.parsing.reader import Sink, Steps, ignore, markers

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
ANY = markers(START, CHANNEL, *ENDS)
MAX_HEADER_CHARS = 512
HEADER_RUN = re.compile(r"[^<]*")
CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")


@dataclass(frozen=True, slots=True)
class HarmonyGrammar:
    """The messages of one answer. The prompt has ended in `<|start|>assistant`, so a header comes first."""

    splits_reasoning: bool = True

    def __call__(self, answer: Answer) -> Steps[None]:
        """Read message after message. Text outside of messages is content."""
        reader = answer.reader
        reader.keep()
        yield from reader.space()
        if (yield from reader.ahead(CHANNEL)) or (yield from reader.ahead("to=")):
            marker = yield from self._message(answer)
        else:
            answer.give_back()
            marker = yield from reader.until(ANY, answer.out.content)
        while marker is not None:
            if marker in (START, CHANNEL):
                reader.keep(marker)
                marker = yield from self._message(answer)
            else:
                marker = yield from reader.until(ANY, answer.out.content)

    def _message(self, answer: Answer) -> Steps[str | None]:
        """Read one message, of whose header the reader has kept what was read. Return the marker that ends it."""
        if not (yield from self._skip_header(answer)):
            answer.give_back()
            return (yield from answer.reader.until(ANY, answer.out.content))
        header = answer.reader.kept()
        channel, recipient = CHANNEL_NAME.search(header), RECIPIENT.search(header)
        if recipient is None:
            return (yield from self._text(self._sink(channel and channel[1], answer), answer))
        if recipient[1] in answer.tools:
            return (yield from self._call(recipient[1], answer))
        answer.out.content(header)
        end = yield from answer.reader.until(ANY, answer.out.content)
        if end in ENDS:
            answer.out.content(end)
        return end

    def _skip_header(self, answer: Answer) -> Steps[bool]:
        """Read up to the message behind the header. False if that cannot be a header."""
        size: list[str] = []
        while sum(map(len, size)) <= MAX_HEADER_CHARS:
            yield from answer.reader.run(HEADER_RUN, size.append)
            if (yield from answer.reader.literal(MESSAGE)):
                return True
            size.append((yield from answer.reader.characters(1)))
            if not size[-1]:
                return False
        return False

    def _sink(self, channel: str | None, answer: Answer) -> Sink:
        return answer.out.reasoning if channel == "analysis" and self.splits_reasoning else answer.out.content

    def _text(self, sink: Sink, answer: Answer) -> Steps[str | None]:
        answer.out.markup()
        sink("\n")  # between two messages of a kind; before the first it is dropped
        end = yield from answer.reader.until(ANY, sink)
        answer.out.markup()
        return end

    def _call(self, name: str, answer: Answer) -> Steps[str | None]:
        answer.out.begin_call(name)
        yield from answer.reader.space()
        if (yield from json_arguments(answer.reader, answer.out.arguments, (*ENDS, START))):
            answer.out.complete_call()
        return (yield from answer.reader.until(ANY, answer.out.content, cut=ignore))
