"""Phi-4-mini: tools as one JSON string in the system message, calls as a `functools[...]` list.

Source: tokenizer_config.json and model card of microsoft/Phi-4-mini-instruct. The template reads the tools from the key
"tools" of the system message and drops calls, which are written into the text of their message.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role
from stylers.messages import to_system_role
from stylers.parsing.json_calls import ObjectList
from stylers.tools import ToolFormat, to_json

SYSTEM = "You are a helpful assistant with some tools."
CALLS = CallFormat(
    begin="functools[",
    before_name='{"name": "',
    before_arguments='", "arguments": ',
    after_arguments="}",
    separator=", ",
    end="]",
)


@dataclass(frozen=True)
class Phi4MiniStyler(Styler):
    """Every role is a turn."""

    stop: ClassVar[tuple[str, ...]] = ("<|end|>", "<|endoftext|>")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, ObjectList("functools"))

    def shows_tools(self) -> bool:
        """Only those that stand in a message, which `write_tools` sees to."""
        return False

    def write_tools(self, chat: Chat) -> Chat:
        """Put the tools into the first system message, made where there is none, and calls behind their text."""
        if not self.template_mentions("tools"):
            return super().write_tools(chat)
        messages = list(to_system_role(chat.messages))
        if messages[0].role != Role.SYSTEM:
            messages.insert(0, Message(Role.SYSTEM, SYSTEM))
        tools = to_json([tool.function for tool in chat.tools])
        messages[0] = replace(messages[0], extra={"tools": tools})
        return replace(chat, messages=tuple(map(_with_calls, messages)), tools=())


def _with_calls(message: Message) -> Message:
    if not message.tool_calls:
        return message
    return replace(message, content=message.text + CALLS.write(message.tool_calls), tool_calls=())


ROWS = (Phi4MiniStyler("phi-4-mini"),)
