"""Gemma 2 and 3: turns of user and model that alternate; the system text stands in the first.

Source: tokenizer_config.json of google/gemma-2-9b-it and gemma-3-4b-it. Neither has tools of its own; Gemma 3 gets
calls as Python in a code block, after "Function calling with Gemma" in Google's documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
from stylers.chat import Chat, Media, Message, Role
from stylers.errors import StylerError
from stylers.messages import alternating, fold_system
from stylers.parsing.python_calls import CodeBlockCalls
from stylers.tools import ToolFormat, ToolText, introduction

IMAGE = "<start_of_image>"
CALLS = CallFormat(
    begin="```tool_code\n",
    before_name="",
    before_arguments="(",
    after_arguments=")",
    separator="\n",
    end="\n```",
    layout=ParameterLayout("", "=", "", ", ", values="python"),
)


def tool_output(result: Message) -> str:
    """Write a result."""
    return f"```tool_output\n{result.text}\n```"


@dataclass(frozen=True)
class Gemma2Styler(Styler):
    """The template knows no system role: its text goes in front of the first question."""

    stop: ClassVar[tuple[str, ...]] = ("<end_of_turn>", "<eos>")

    def repair(self, chat: Chat) -> Chat:
        """Fold the system text in and let the roles alternate."""
        return replace(chat, messages=alternating(fold_system(chat.messages)))


@dataclass(frozen=True)
class Gemma3Styler(Styler):
    """The template puts the system text into the first turn."""

    stop: ClassVar[tuple[str, ...]] = ("<end_of_turn>", "<eos>")
    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE}
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(
        CALLS, CodeBlockCalls("```tool_code"), ToolText(partial(introduction, CALLS), CALLS, tool_output)
    )

    def repair(self, chat: Chat) -> Chat:
        """Let the roles behind the system message alternate."""
        first, *rest = chat.messages
        if first.role != Role.SYSTEM:
            return replace(chat, messages=alternating(chat.messages))
        return replace(chat, messages=(first, *alternating(rest)))

    def build(self, chat: Chat) -> str:
        """Write BOS, the turns and the opening of the answer."""
        prefix, messages = "", chat.messages
        if messages[0].role == Role.SYSTEM:
            prefix, messages = f"{messages[0].text}\n\n", messages[1:]
        if any((message.role == Role.USER) == bool(index % 2) for index, message in enumerate(messages)):
            raise StylerError("user and assistant have to take turns", param="messages")
        turns = [
            f"<start_of_turn>{_role(message)}\n{'' if index else prefix}{_content(message)}<end_of_turn>\n"
            for index, message in enumerate(messages)
        ]
        opening = "<start_of_turn>model\n" if chat.add_generation_prompt else ""
        return self.settings.bos_token + "".join(turns) + opening


def _role(message: Message) -> str:
    return "model" if message.role == Role.ASSISTANT else message.role


def _content(message: Message) -> str:
    if not isinstance(message.content, tuple):
        return message.text.strip()
    return "".join(IMAGE if isinstance(part, Media) else part.text.strip() for part in message.content)


ROWS = (Gemma2Styler("gemma-2"), Gemma3Styler("gemma-3"))
