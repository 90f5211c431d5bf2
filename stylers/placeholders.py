"""Content as one text in which a word stands for each image, for models whose prompt is built by their own code."""

from collections.abc import Callable

from stylers.chat import Media, Message


def text_with_placeholders(message: Message, placeholder: Callable[[Media], str]) -> str:
    """Join texts and the placeholders of images and videos by newlines."""
    if not isinstance(message.content, tuple):
        return message.text
    return "\n".join(placeholder(part) if isinstance(part, Media) else part.text for part in message.content)
