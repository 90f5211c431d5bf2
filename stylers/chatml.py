"""ChatML, the turn format of many families: `<|im_start|>ROLE`, a newline, the text, `<|im_end|>`."""

from collections.abc import Iterable

from stylers.chat import Message

START = "<|im_start|>"
END = "<|im_end|>"


def turn(role: str, text: str) -> str:
    """One whole turn, with the newline behind it."""
    return f"{START}{role}\n{text}{END}\n"


def turns(messages: Iterable[Message]) -> str:
    """Every message as a turn of its role."""
    return "".join(turn(message.role, message.text) for message in messages)


def opening(role: str = "assistant") -> str:
    """Open the turn that the model is to write."""
    return f"{START}{role}\n"
