"""MiniCPM-V 2.6: Qwen 2's template, with images as words in the text.

Source: tokenizer_config.json and processing_minicpmv.py of openbmb/MiniCPM-V-2_6. The parts of a message are joined by
a newline; the processor replaces the whole placeholder, its parentheses included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.chat import Chat
from stylers.placeholders import text_with_placeholders
from stylers.qwen2 import Qwen2Styler

IMAGE = "(<image>./</image>)"


@dataclass(frozen=True)
class MiniCPMVStyler(Qwen2Styler):
    """The words are written before the template sees the chat."""

    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE}

    def normalise(self, chat: Chat) -> Chat:
        """Write a placeholder for each image."""
        chat = super().normalise(chat)
        messages = (
            replace(message, content=text_with_placeholders(message, lambda _: IMAGE)) if message.media else message
            for message in chat.messages
        )
        return replace(chat, messages=tuple(messages))


ROWS = (MiniCPMVStyler("minicpm-v-2.6"),)
