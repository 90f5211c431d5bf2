"""The whole of an answer: reasoning first, if there is any, then content with calls in it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stylers.chat import ToolDefinition
from stylers.output import Delta, EngineFinish, IdFactory, OutputParser
from stylers.parsing.emitter import Emitter
from stylers.parsing.reader import Markers, Reader, Steps, markers


class Tools:
    """The request's tools, as a parser needs them."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._by_name = {tool.name: tool for tool in tools}
        self._longest = max(map(len, self._by_name), default=0)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> ToolDefinition:
        return self._by_name[name]

    def begin_with(self, text: str) -> bool:
        """Whether a name begins with `text`."""
        return any(name.startswith(text) for name in self._by_name)

    def allow(self, num_chars: int) -> bool:
        """Whether a name of so many characters can be one of the tools'."""
        return num_chars <= self._longest

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer in the making: the text that comes in, the deltas that go out, the tools that may be called."""

    reader: Reader
    out: Emitter
    tools: Tools

    def give_back(self) -> None:
        """What was kept turned out to be no call: it is content, unless it only is none yet because it was cut."""
        if not self.reader.lose_markup():
            self.out.content(self.reader.kept())

    def give_back_element(self, num_calls_before: int) -> None:
        """What was kept is an element of a list, and no call. Behind a call the list's own comma is left out."""
        if self.reader.lose_markup():
            return
        text = self.reader.kept()
        self.out.content(text.lstrip(" ,\n") if self.out.num_calls > num_calls_before else text)

    def begin_call(self, name: str, call_id: str | None = None) -> None:
        """What was kept was the beginning of a call."""
        self.reader.kept()
        self.out.begin_call(name, call_id)


class CallReader(ABC):
    """How a family's calls are read. It has no state of its own; one object serves all answers."""

    @property
    @abstractmethod
    def markers(self) -> Markers:
        """Where to look for a call."""

    def at_start(self, answer: Answer) -> Steps[None]:
        """Read a call that may stand at the start of the answer without a marker."""
        return
        yield

    @abstractmethod
    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read what follows `marker`, which has been read."""


Grammar: TypeAlias = Callable[[Answer], Steps[None]]


class GrammarParser(OutputParser):
    """Runs a grammar over the text as it arrives."""

    def __init__(self, grammar: Grammar, tools: Sequence[ToolDefinition], new_id: IdFactory) -> None:
        self._reader = Reader()
        self._out = Emitter(new_id)
        self._steps = grammar(Answer(self._reader, self._out, Tools(tools)))

    def feed(self, text: str) -> list[Delta]:
        """Take the next piece of raw text and return what is new."""
        self._reader.add(text)
        next(self._steps, None)
        return self._out.take()

    def flush(self, engine_finish: EngineFinish = "stop") -> list[Delta]:
        """End the answer: give out what was held back and set `finish_reason`."""
        self._reader.end(cut_short=engine_finish == "length")
        next(self._steps, None)
        self.finish_reason = self._out.finish(engine_finish, inside_markup=self._reader.lost_markup)
        return self._out.take()


@dataclass(frozen=True, slots=True)
class AnswerGrammar:
    """Reasoning between two tags at the start, then content in which calls stand.

    begins_inside: the prompt has opened the reasoning. The opening tag may be repeated then, and is dropped.
    """

    think: tuple[str, str] | None = None
    begins_inside: bool = False
    calls: CallReader | None = None

    def __call__(self, answer: Answer) -> Steps[None]:
        """Read an answer."""
        if self.think is not None:
            yield from self._reasoning(*self.think, answer)
        yield from content_with_calls(answer, self.calls)

    def _reasoning(self, opening: str, closing: str, answer: Answer) -> Steps[None]:
        answer.reader.keep()
        opened = yield from answer.reader.spaced(opening)
        if not opened and not self.begins_inside:
            answer.give_back()
            return
        kept = answer.reader.kept()
        if not opened:
            answer.out.reasoning(kept)
        yield from answer.reader.until(markers(closing), answer.out.reasoning)
        answer.out.markup()


def content_with_calls(answer: Answer, calls: CallReader | None) -> Steps[None]:
    """Read content to the end; without tools in the request nothing in it is a call."""
    if calls is None or not answer.tools:
        yield from answer.reader.until(markers(), answer.out.content)
        return
    yield from calls.at_start(answer)
    while (marker := (yield from answer.reader.until(calls.markers, answer.out.content))) is not None:
        yield from calls.at_marker(marker, answer)
