"""What comes back: deltas while the model writes, and the message they add up to."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stylers.chat import ToolCall

EngineFinish: TypeAlias = Literal["stop", "length"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
IdFactory: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """News of call number `index`: its id and name once, at its start, then pieces of its arguments' JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of news: of content, of reasoning or of calls. What was sent is never taken back."""

    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A whole answer. Content and reasoning are None where there is nothing of them."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason


class OutputParser(ABC):
    """Reads one sequence's text as it arrives; one per sequence, because it keeps state between pieces.

    Wherever the text is cut into pieces, the deltas add up to the same message.
    """

    finish_reason: FinishReason  # set by flush()

    @abstractmethod
    def feed(self, text: str) -> list[Delta]:
        """Take the next piece of raw text (special tokens kept, end token cut off) and return what is new."""

    @abstractmethod
    def flush(self, engine_finish: EngineFinish = "stop") -> list[Delta]:
        """End the answer: give out what was held back and set `finish_reason`."""


class PlainParser(OutputParser):
    """For families that mark nothing: all is content."""

    def feed(self, text: str) -> list[Delta]:
        """Pass the text through."""
        return [Delta(content=text)] if text else []

    def flush(self, engine_finish: EngineFinish = "stop") -> list[Delta]:
        """Nothing is held back."""
        self.finish_reason = engine_finish
        return []


def merge(deltas: Iterable[Delta], finish_reason: FinishReason) -> ParsedMessage:
    """Add deltas up to the message they are pieces of."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: dict[int, tuple[str, str | None, list[str]]] = {}
    for delta in deltas:
        content.append(delta.content or "")
        reasoning.append(delta.reasoning or "")
        for call in delta.tool_calls:
            _, _, arguments = calls.setdefault(call.index, (call.name or "", call.id, []))
            arguments.append(call.arguments or "")
    return ParsedMessage(
        content="".join(content) or None,
        reasoning="".join(reasoning) or None,
        tool_calls=tuple(ToolCall(name, "".join(arguments), call_id) for name, call_id, arguments in calls.values()),
        finish_reason=finish_reason,
    )


def random_call_id() -> str:
    """Return a fresh id in OpenAI's form."""
    return f"call_{secrets.token_hex(12)}"
