"""Qwen 3: Qwen 2.5's tools, and reasoning in `<think>` tags that earlier turns lose.

Source: tokenizer_config.json of Qwen/Qwen3-8B, 2025-05-19; of Qwen/Qwen3-30B-A3B-Instruct-2507 and -Thinking-2507.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stylers import chatml, qwen2, qwen25
from stylers.base import Styler
from stylers.chat import Chat, Message, Role
from stylers.tools import HERMES_CALLS, HERMES_READER, ToolFormat

THINK = ("<think>", "</think>")
EMPTY_THINK = "<think>\n\n</think>\n\n"


@dataclass(frozen=True)
class Qwen3InstructStyler(Styler):
    """The 2507 models that do not think; their folder's template is needed."""

    stop: ClassVar[tuple[str, ...]] = qwen2.STOP
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(HERMES_CALLS, HERMES_READER)


@dataclass(frozen=True)
class Qwen3ThinkingStyler(Qwen3InstructStyler):
    """The 2507 models that always think; their prompt opens the reasoning."""

    think: ClassVar[tuple[str, str] | None] = THINK


@dataclass(frozen=True)
class Qwen3Styler(Qwen3ThinkingStyler):
    """The hybrid models: `enable_thinking` false closes an empty reasoning in the prompt."""

    builder_shows_tools: ClassVar[bool] = True

    def build(self, chat: Chat) -> str:
        """Write the turns. Only behind the last question do the assistant's turns show their reasoning."""
        last_query, last = _last_query(chat.messages), len(chat.messages) - 1

        def turn(index: int, message: Message) -> str:
            if message.role != Role.ASSISTANT:
                return chatml.turn(message.role, message.text)
            return _assistant_turn(message, shows=index > last_query, is_last=index == last)

        no_thinking = chat.template_kwargs.get("enable_thinking") is False
        opening = chatml.opening(chat, EMPTY_THINK if no_thinking else "")
        return qwen25.system_turn(chat, None) + qwen25.turns(chat.messages, turn) + opening


def _last_query(messages: Sequence[Message]) -> int:
    """The index of the last message that is a question of the user and no result."""
    for index in reversed(range(len(messages))):
        text = messages[index].text
        is_result = text.startswith("<tool_response>") and text.endswith("</tool_response>")
        if messages[index].role == Role.USER and not is_result:
            return index
    return len(messages) - 1


def _assistant_turn(message: Message, *, shows: bool, is_last: bool) -> str:
    content, reasoning = message.text, message.reasoning
    if reasoning is None:
        reasoning, content = _split_reasoning(content)
    if shows and (is_last or reasoning):
        stripped = reasoning.strip("\n")
        content_behind = content.lstrip("\n")
        shown = f"<think>\n{stripped}\n</think>\n\n{content_behind}"
    else:
        shown = content
    calls = HERMES_CALLS.write(message.tool_calls)  # arguments that are no JSON stand as they are
    return chatml.turn(message.role, f"{shown}\n{calls}" if calls and content else shown + calls)


def _split_reasoning(content: str) -> tuple[str, str]:
    opening, closing = THINK
    if closing not in content:
        return "", content
    before, *_, after = content.split(closing)
    return before.rstrip("\n").split(opening)[-1].lstrip("\n"), after.lstrip("\n")


ROWS = (
    Qwen3Styler("qwen3"),
    Qwen3InstructStyler("qwen3-instruct-2507"),
    Qwen3ThinkingStyler("qwen3-thinking-2507"),
)
