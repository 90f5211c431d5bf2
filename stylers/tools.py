"""How a family writes and reads calls, and how tools get into a prompt that has no place for them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role, ToolCall, ToolDefinition
from stylers.parsing.answer import CallReader
from stylers.parsing.json_calls import TaggedObjects


@dataclass(frozen=True, slots=True)
class ToolText:
    """Writes tools, calls and results into the texts of a chat, for prompts whose own text ignores them.

    block: the text that introduces the tools, for the system message. calls, result: how calls and one result are
    written; None where the prompt shows them by itself. Neighbouring results become one message of result_role.
    before_calls stands between a message's text and its calls.
    """

    block: Callable[[Sequence[ToolDefinition]], str]
    calls: CallFormat | None = None
    result: Callable[[Message], str] | None = None
    result_role: str = Role.USER
    before_calls: str = "\n"

    def write(self, chat: Chat) -> Chat:
        """Return the chat with all its tools in texts."""
        messages = [self._with_calls(message) for message in self._with_results(chat.messages)]
        return replace(chat, messages=with_system_text(messages, self.block(chat.tools)), tools=())

    def _with_calls(self, message: Message) -> Message:
        if self.calls is None or not message.tool_calls:
            return message
        calls = self.calls.write(message.tool_calls)
        text = f"{message.text}{self.before_calls}{calls}" if message.text else calls
        return replace(message, content=text, tool_calls=())

    def _with_results(self, messages: Iterable[Message]) -> Iterator[Message]:
        for is_result, group in groupby(messages, lambda message: message.role == Role.TOOL):
            if is_result and self.result is not None:
                yield Message(self.result_role, "\n".join(map(self.result, group)))
            else:
                yield from group


def with_system_text(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Put text behind the system message's own, or make a system message of it."""
    if messages and messages[0].role in (Role.SYSTEM, Role.DEVELOPER):
        first = messages[0]
        return (replace(first, content=f"{first.text}\n\n{text}" if first.text else text), *messages[1:])
    return (Message(Role.SYSTEM, text), *messages)


def to_json(value: object, indent: int | None = None) -> str:
    """Write JSON as templates do."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def tagged_result(message: Message) -> str:
    """Write a result between the tags of the Hermes format."""
    return f"<tool_response>\n{message.text}\n</tool_response>"


HERMES_CALLS = CallFormat('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", separator="\n")
HERMES_READER = TaggedObjects("<tool_call>", "</tool_call>")


def introduction(calls: CallFormat, tools: Sequence[ToolDefinition]) -> str:
    """Introduce tools, and the form of a call, to a model for which no text of its own is documented."""
    definitions = "\n".join(to_json(tool.function) for tool in tools)
    example = calls.write([ToolCall("NAME", '{"PARAMETER": "VALUE"}')])
    return (
        "You can call these functions, each given as a JSON object with its name, description and parameters:\n"
        f"{definitions}\n\n"
        "To call a function, write its name and its arguments in exactly this form, and nothing after it:\n"
        f"{example}\n"
        "Where none of them helps, answer in words."
    )


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a family writes and reads calls. text: how tools get into prompts that ignore them, where it is known."""

    calls: CallFormat
    reader: CallReader
    text: ToolText | None = None

    def write_into_texts(self, chat: Chat) -> Chat:
        """Return the chat with its tools in texts."""
        text = self.text or ToolText(partial(introduction, self.calls), self.calls, tagged_result)
        return text.write(chat)


GENERIC_TOOLS = ToolFormat(HERMES_CALLS, HERMES_READER)  # for models trained on no format, on the operator's wish
