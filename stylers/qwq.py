"""QwQ: Qwen 2.5's turns, without a default system text, and reasoning that the prompt opens.

Source: tokenizer_config.json of Qwen/QwQ-32B, 2025-03-11.
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers import chatml, qwen25
from stylers.chat import Chat, Message, Role
from stylers.qwen25 import Qwen25Styler

THINK = ("<think>", "</think>")


@dataclass(frozen=True)
class QwQStyler(Qwen25Styler):
    """Earlier turns lose the reasoning in their text."""

    default_system: str | None = None
    think: ClassVar[tuple[str, str] | None] = THINK

    def build(self, chat: Chat) -> str:
        """Write the turns; the last one, if it is the assistant's, keeps its reasoning."""
        last = len(chat.messages) - 1
        turns = qwen25.turns(chat.messages, lambda index, message: _turn(message, is_last=index == last))
        return qwen25.system_turn(chat, "" if chat.tools else None) + turns + chatml.opening(chat, "<think>\n")


def _turn(message: Message, is_last: bool) -> str:
    if message.role != Role.ASSISTANT:
        return chatml.turn(message.role, message.text)
    content = message.text if is_last else message.text.split(THINK[1])[-1].lstrip("\n")
    if not message.tool_calls:
        return chatml.turn(message.role, content)
    calls = "\n".join(map(qwen25.call, message.tool_calls))
    return chatml.turn(message.role, f"{content}\n{calls}" if message.text else calls)


ROWS = (QwQStyler("qwq-32b", ("qwq",)),)
