"""Calls that name each parameter in tags, with values typed by the tool's schema instead of quotes."""

import json
import re
from dataclasses import dataclass

from stylers.chat import ToolDefinition
from stylers.parsing.answer import Answer, CallReader
from stylers.parsing.literals import json_text
from stylers.parsing.reader import Markers, Steps, ignore, markers
from stylers.parsing.schema import parameter_types, typed_json

NAME = re.compile(r"[^\s<>]*")


@dataclass(frozen=True)
class ParameterCalls(CallReader):
    """The tags of such calls, in the order in which they stand.

    newlines: one newline at each end of a value belongs to the tags. The model sometimes leaves tags out.
    optional_begin: the tag before the name begins a call as well. optional_after_value: the tag of the next parameter
    or of the end closes a value as well.
    """

    begin: str
    before_name: str
    after_name: str
    before_key: str
    after_key: str
    before_value: str
    after_value: str
    after_parameters: str
    end: str
    newlines: bool = False
    optional_begin: bool = False
    optional_after_value: bool = False

    @property
    def markers(self) -> Markers:
        """Where to look for a call."""
        return markers(self.begin, self.before_name) if self.optional_begin else markers(self.begin)

    def at_marker(self, marker: str, answer: Answer) -> Steps[None]:
        """Read one call."""
        answer.reader.keep(marker)
        name = yield from self._name(marker, answer)
        if name is None or name not in answer.tools:
            answer.give_back()
            return
        answer.begin_call(name)
        if (yield from self._parameters(answer.tools[name], answer)):
            answer.out.complete_call()
            yield from answer.reader.closing(self.end)

    def _name(self, marker: str, answer: Answer) -> Steps[str | None]:
        reader = answer.reader
        if marker == self.begin and not (yield from reader.spaced(self.before_name)):
            return None
        yield from reader.space()
        name = yield from reader.word(NAME, answer.tools.begin_with)
        ended = (yield from reader.literal(self.after_name)) if self.after_name else (yield from reader.peek())
        return name if ended else None

    def _parameters(self, tool: ToolDefinition, answer: Answer) -> Steps[bool]:
        """Read the parameters; True if the call was closed behind them."""
        reader, out = answer.reader, answer.out
        between = markers(*filter(None, (self.before_key, self.after_parameters, self.end)))
        opening = "{"
        marker = yield from reader.until(between, ignore)
        while marker == self.before_key:
            pieces: list[str] = []
            yield from reader.until(markers(self.after_key), pieces.append)
            if self.before_value:
                yield from reader.closing(self.before_value)
            if not (yield from reader.peek()):
                return False
            key = "".join(pieces).strip()
            out.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
            opening = ", "
            marker = yield from self._value(parameter_types(tool, key), answer)
            if marker == self.after_value:
                marker = yield from reader.until(between, ignore)
        if marker is None:
            return False
        out.arguments("{}" if opening == "{" else "}")
        return True

    def _value(self, types: frozenset[str], answer: Answer) -> Steps[str | None]:
        """Read a value, text as it comes, anything else when it is whole. Return the tag that closed it."""
        reader, out = answer.reader, answer.out
        also = (self.before_key, self.after_parameters) if self.optional_after_value else ()
        ends = markers(self.after_value, *also)
        text = Unpadded("\n" if self.newlines else "")
        if types == {"string"}:
            out.arguments('"')
            end = yield from reader.until(ends, lambda piece: out.arguments(json_text(text.write(piece))), ignore)
            if end is not None:
                out.arguments('"')
        else:
            pieces: list[str] = []
            end = yield from reader.until(ends, lambda piece: pieces.append(text.write(piece)))
            if end is not None:
                out.arguments(typed_json("".join(pieces), types))
        return end


class Unpadded:
    """Text without the one `padding` character that may stand at each of its ends."""

    def __init__(self, padding: str) -> None:
        self._padding = padding
        self._begun = not padding
        self._held = ""

    def write(self, text: str) -> str:
        """Take text and return what surely belongs to the value."""
        if not self._begun:
            self._begun = True
            text = text.removeprefix(self._padding)
        if not self._padding or not text:
            return text
        text = self._held + text
        self._held = self._padding if text.endswith(self._padding) else ""
        return text.removesuffix(self._padding)
