"""Janus-Pro: labelled turns, images as a word in the text.

Source: deepseek-ai/Janus, janus/utils/conversation.py (template "deepseek") and janus/models/processing_vlm.py. The
tokenizer adds the BOS token; texts and the whole prompt lose the blanks at their ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.chat import Chat, Role
from stylers.deepseek import END
from stylers.placeholders import text_with_placeholders

IMAGE = "<image_placeholder>"
SYSTEM = (
    "You are a helpful language and vision assistant. You are able to understand the visual content that the user "
    "provides, and assist the user with a variety of tasks using natural language."
)


@dataclass(frozen=True)
class JanusStyler(Styler):
    """The user's turns end in an empty line, the assistant's in the end token."""

    stop: ClassVar[tuple[str, ...]] = (END, "<|User|>")
    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE}

    def normalise(self, chat: Chat) -> Chat:
        """Write a placeholder for each image."""
        chat = super().normalise(chat)
        messages = (
            replace(message, content=text_with_placeholders(message, lambda _: IMAGE)) if message.media else message
            for message in chat.messages
        )
        return replace(chat, messages=tuple(messages))

    def build(self, chat: Chat) -> str:
        """Write BOS where the model has one, the system text, the turns and the opening of the answer."""
        messages, system = chat.messages, SYSTEM
        if messages[0].role == Role.SYSTEM:
            system, messages = messages[0].text.strip(), messages[1:]
        parts = [f"{system}\n\n"]
        for message in messages:
            if message.role == Role.ASSISTANT:
                parts.append(f"<|Assistant|>: {message.text.strip()}{END}")
            else:
                parts.append(f"<|User|>: {message.text.strip()}\n\n")
        if chat.add_generation_prompt:
            parts.append("<|Assistant|>:")
        return self.settings.bos_token + "".join(parts).strip()


ROWS = (JanusStyler("janus-pro"),)
