"""ChatML, the turn format of many families: `<|im_start|>ROLE`, a newline, the text, `<|im_end|>`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from stylers.base import Styler
from stylers.chat import Chat, Message, Role

START = "<|im_start|>"
END = "<|im_end|>"


def turn(role: str, text: str) -> str:
    """One whole turn, with the newline behind it."""
    return f"{START}{role}\n{text}{END}\n"


def turns(messages: Iterable[Message]) -> str:
    """Every message as a turn of its role."""
    return "".join(turn(message.role, message.text) for message in messages)


def opening(chat: Chat, then: str = "") -> str:
    """Open the turn that the model is to write, where the request asks for it."""
    return f"{START}assistant\n{then}" if chat.add_generation_prompt else ""


@dataclass(frozen=True)
class ChatMLStyler(Styler):
    """Every message is a turn of its role. default_system: the system text of requests that have none."""

    default_system: str | None = None
    stop: ClassVar[tuple[str, ...]] = (END,)

    def build(self, chat: Chat) -> str:
        """Write the turns, and the opening of the answer."""
        return self.header(chat) + turns(chat.messages) + opening(chat)

    def header(self, chat: Chat) -> str:
        """The default system turn, where it is needed."""
        if self.default_system is None or chat.messages[0].role == Role.SYSTEM:
            return ""
        return turn(Role.SYSTEM, self.default_system)
