"""Qwen2-VL, Qwen2.5-VL and olmOCR: Qwen 2 with images and videos.

Source: chat_template.json of Qwen/Qwen2-VL-7B-Instruct and Qwen2.5-VL-7B-Instruct; allenai/olmOCR uses its base's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from stylers import chatml
from stylers.chat import Chat, Media, Message
from stylers.qwen2 import Qwen2Styler

PADS = {"image": "<|image_pad|>", "video": "<|video_pad|>"}


@dataclass(frozen=True)
class Qwen2VLStyler(Qwen2Styler):
    """Content parts follow each other without a separator; `add_vision_id` numbers the pictures and videos."""

    slots: ClassVar[Mapping[str, str]] = PADS

    def build(self, chat: Chat) -> str:
        """Write the turns and the opening of the answer."""
        numbers = {"image": count(1), "video": count(1)}
        with_ids = bool(chat.template_kwargs.get("add_vision_id"))

        def part(media: Media) -> str:
            label = {"image": "Picture", "video": "Video"}[media.kind]
            number = f"{label} {next(numbers[media.kind])}: " if with_ids else ""
            return f"{number}<|vision_start|>{PADS[media.kind]}<|vision_end|>"

        def text(message: Message) -> str:
            if not isinstance(message.content, tuple):
                return message.text
            return "".join(part(each) if isinstance(each, Media) else each.text for each in message.content)

        turns = "".join(chatml.turn(message.role, text(message)) for message in chat.messages)
        return self.header(chat) + turns + chatml.opening(chat)


ROWS = (Qwen2VLStyler("qwen2-vl"), Qwen2VLStyler("qwen2.5-vl"), Qwen2VLStyler("olmocr"))
