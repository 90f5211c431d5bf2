"""Where a grammar puts what it has read: the deltas of one answer."""

from dataclasses import replace
from itertools import groupby

from stylers.output import Delta, EngineFinish, FinishReason, IdFactory, ToolCallDelta


class TextChannel:
    """Text whose blanks beside markup are dropped. Blanks are held until it is known what follows them."""

    __slots__ = ("_begun", "_blanks", "_drops_start")

    def __init__(self, *, drops_start: bool = False) -> None:
        self._begun = False
        self._drops_start = drops_start
        self._blanks: list[str] = []

    def write(self, text: str) -> str:
        """Take text and return what can be given out."""
        body = text.rstrip()
        tail = text[len(body) :]
        if not body:
            self._blanks.append(tail)
            return ""
        drops_blanks = self._drops_start and not self._begun
        body = body.lstrip() if drops_blanks else "".join((*self._blanks, body))
        self._begun = True
        self._blanks = [tail] if tail else []
        return body

    def beside_markup(self) -> None:
        """Markup stands here: blanks before the first text are no part of it."""
        self._drops_start = True

    def rest(self) -> str:
        """Return the blanks that were held back last."""
        return "".join(self._blanks) if self._begun or not self._drops_start else ""


class Emitter:
    """Collects deltas; `take()` hands over what is new."""

    __slots__ = ("_calls", "_complete", "_content", "_deltas", "_ends_in_markup", "_new_id", "_reasoning")

    def __init__(self, new_id: IdFactory) -> None:
        self._new_id = new_id
        self._deltas: list[Delta] = []
        self._content = TextChannel()
        self._reasoning = TextChannel(drops_start=True)
        self._ends_in_markup = False
        self._calls = 0
        self._complete = False

    @property
    def num_calls(self) -> int:
        """Calls begun so far."""
        return self._calls

    def take(self) -> list[Delta]:
        """Return the deltas since the last time, neighbours of a kind joined."""
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) < 2 else _joined(deltas)

    def content(self, text: str) -> None:
        """Write to the content."""
        if text := self._content.write(text):
            self._ends_in_markup = False
            self._deltas.append(Delta(content=text))

    def reasoning(self, text: str) -> None:
        """Write to the reasoning."""
        self.markup()
        if text := self._reasoning.write(text):
            self._deltas.append(Delta(reasoning=text))

    def markup(self) -> None:
        """Say that markup stands here, which is no text."""
        self._content.beside_markup()
        self._ends_in_markup = True

    def begin_call(self, name: str, call_id: str | None = None) -> None:
        """Begin a call; its id is the model's own where it wrote one."""
        self.markup()
        self._deltas.append(Delta(tool_calls=(ToolCallDelta(self._calls, call_id or self._new_id(), name),)))
        self._calls += 1
        self._complete = False

    def arguments(self, text: str) -> None:
        """Write to the arguments of the call begun last."""
        if text:
            self._deltas.append(Delta(tool_calls=(ToolCallDelta(self._calls - 1, arguments=text),)))

    def complete_call(self) -> None:
        """Say that the call begun last was not cut inside its arguments."""
        self._complete = True

    def finish(self, engine_finish: EngineFinish, *, inside_markup: bool) -> FinishReason:
        """End the answer and say why it ended. `inside_markup`: it was cut where another call may have begun."""
        if inside_markup:
            self.markup()
            self._complete = False
        blanks = "" if self._ends_in_markup else self._content.rest()
        if blanks:
            self._deltas.append(Delta(content=blanks))
        return "tool_calls" if self._complete else engine_finish


def _joined(deltas: list[Delta]) -> list[Delta]:
    return [_sum(kind, list(group)) for kind, group in groupby(deltas, _kind)]


def _kind(delta: Delta) -> str | int:
    """What a delta is news of: content, reasoning, or the call with this index."""
    if delta.tool_calls:
        return delta.tool_calls[0].index
    return "reasoning" if delta.content is None else "content"


def _sum(kind: str | int, deltas: list[Delta]) -> Delta:
    if kind == "content":
        return Delta(content="".join(delta.content or "" for delta in deltas))
    if kind == "reasoning":
        return Delta(reasoning="".join(delta.reasoning or "" for delta in deltas))
    calls = [delta.tool_calls[0] for delta in deltas]
    arguments = "".join(call.arguments or "" for call in calls)
    return Delta(tool_calls=(replace(calls[0], arguments=arguments or None),))
