"""Phi-3, Phi-3.5 and Phi-4: turns of system, user and assistant; other roles are left out.

Source: tokenizer_config.json of microsoft/Phi-3-mini-4k-instruct (2024-07-01), Phi-3.5-mini-instruct and phi-4
(2025-02-04).
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers.base import Styler
from stylers.chat import Chat, Message, Role

ROLES = (Role.SYSTEM, Role.USER, Role.ASSISTANT)


@dataclass(frozen=True)
class Phi3Styler(Styler):
    """Turns end in `<|end|>`. skips_empty_system: a system message without text is left out."""

    skips_empty_system: bool = False
    stop: ClassVar[tuple[str, ...]] = ("<|end|>", "<|endoftext|>", "<|assistant|>")

    def build(self, chat: Chat) -> str:
        """Write the turns, then the opening of the answer or the end token."""
        turns = "".join(
            f"<|{message.role}|>\n{message.text}<|end|>\n" for message in chat.messages if self._has(message)
        )
        return turns + ("<|assistant|>\n" if chat.add_generation_prompt else self.settings.eos_token)

    def _has(self, message: Message) -> bool:
        if message.role == Role.SYSTEM and self.skips_empty_system:
            return bool(message.text)
        return message.role in ROLES


@dataclass(frozen=True)
class Phi4Styler(Styler):
    """ChatML with a separator of its own and no newlines."""

    stop: ClassVar[tuple[str, ...]] = ("<|im_end|>", "<|endoftext|>")

    def build(self, chat: Chat) -> str:
        """Write the turns and the opening of the answer."""
        turns = "".join(
            f"<|im_start|>{message.role}<|im_sep|>{message.text}<|im_end|>"
            for message in chat.messages
            if message.role in ROLES
        )
        return turns + ("<|im_start|>assistant<|im_sep|>" if chat.add_generation_prompt else "")


ROWS = (
    Phi3Styler("phi-3-mini", ("phi-3",)),
    Phi3Styler("phi-3.5-mini", ("phi-3.5",), skips_empty_system=True),
    Phi4Styler("phi-4"),
)
