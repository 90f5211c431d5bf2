"""Kimi K2: calls between section markers, with ids of the form `functions.NAME:N`.

Source: chat_template.jinja of moonshotai/Kimi-K2-Instruct, 2025-10-22. The ids that the model writes are kept: its
histories need them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message
from stylers.messages import to_system_role
from stylers.parsing.json_calls import HeadedCalls
from stylers.tools import ToolFormat

BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
HEADER = re.compile(r"(?:functions\.)?(?P<name>.*?)(?P<number>:\d+)?")
CALLS = CallFormat(
    begin=SECTION[0],
    before_name=f"{BEGIN}functions.",
    before_arguments=f":{{index}}{ARGUMENTS}",
    after_arguments=END,
    end=SECTION[1],
)


def name_and_id(header: str) -> tuple[str, str | None]:
    """Take the name out of an id."""
    found = HEADER.fullmatch(header)
    assert found is not None
    return found["name"], header if found["number"] else None


READER = HeadedCalls(
    begin=BEGIN,
    before_arguments=(ARGUMENTS,),
    ends=(END,),
    section=SECTION,
    longest=len("functions.:") + 6,
    name_and_id=name_and_id,
)


@dataclass(frozen=True)
class KimiK2Styler(Styler):
    """The folder's template is rendered; calls without an id get one of the model's form."""

    stop: ClassVar[tuple[str, ...]] = ("<|im_end|>", "[EOS]")
    slots: ClassVar[Mapping[str, str]] = {"image": "<|media_pad|>"}
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, READER)

    def normalise(self, chat: Chat) -> Chat:
        """Number the calls that have no id."""
        messages: list[Message] = []
        num_calls = 0
        for message in to_system_role(chat.messages):
            calls = tuple(
                replace(call, id=call.id or f"functions.{call.name}:{num_calls + index}")
                for index, call in enumerate(message.tool_calls)
            )
            num_calls += len(calls)
            messages.append(replace(message, tool_calls=calls))
        return replace(chat, messages=tuple(messages))


ROWS = (KimiK2Styler("kimi-k2"),)
