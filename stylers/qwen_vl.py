"""Qwen-VL, the first version: ChatML with numbered pictures.

Source: QwenLM/Qwen-VL, openai_api.py; tokenization_qwen.py of Qwen/Qwen-VL-Chat.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

from stylers.chat import Chat, Media
from stylers.placeholders import text_with_placeholders
from stylers.qwen2 import Qwen2Styler

IMAGE = "<imgpad>"


@dataclass(frozen=True)
class QwenVLStyler(Qwen2Styler):
    """A picture's slot stands between `<img>` and `</img>`; pictures are counted over the whole chat."""

    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE}

    def normalise(self, chat: Chat) -> Chat:
        """Write a placeholder for each picture."""
        chat = super().normalise(chat)
        numbers = count(1)

        def placeholder(media: Media) -> str:
            return f"Picture {next(numbers)}: <img>{IMAGE}</img>"

        messages = (
            replace(message, content=text_with_placeholders(message, placeholder)) if message.media else message
            for message in chat.messages
        )
        return replace(chat, messages=tuple(messages))

    def build(self, chat: Chat) -> str:
        """Write the turns; the model's code puts no newline behind the last of the conversation."""
        prompt = super().build(chat)
        return prompt if chat.add_generation_prompt else prompt.removesuffix("\n")


ROWS = (QwenVLStyler("qwen-vl"),)
