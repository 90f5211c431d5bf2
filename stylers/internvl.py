"""InternVL 2, 2.5 and 3 through the models' own conversation code, and InternVideo 2.5.

Source: OpenGVLab/InternVL, internvl_chat/internvl/conversation.py; OpenGVLab/InternVideo, InternVideo2.5/README.md. An
image is the word `<image>` in the text, by convention in front of the question; a caller may write the words himself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.chat import Chat, Role
from stylers.errors import StylerError
from stylers.placeholders import text_with_placeholders

IMAGE = "<image>"
SYSTEM_2 = (
    "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，"  # noqa: RUF001 - as trained
    "英文名叫InternVL, 是一个有用无害的人工智能助手。"
)
SYSTEM_25 = (
    "你是书生·万象，英文名是InternVL，"  # noqa: RUF001 - as trained
    "是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
)


@dataclass(frozen=True, slots=True)
class Turns:
    """How a conversation form writes its turns: before the role, behind it, behind the text."""

    before: str
    behind: str
    end: str

    def write(self, role: str, text: str) -> str:
        """Write one whole turn."""
        return f"{self.open(role)}{text}{self.end}"

    def open(self, role: str) -> str:
        """Write the beginning of a turn."""
        return f"{self.before}{role}{self.behind}"


CHATML = Turns("<|im_start|>", "\n", "<|im_end|>")
CHATML_LINES = Turns("<|im_start|>", "\n", "<|im_end|>\n")
PHI3 = Turns("<|", "|>\n", "<|end|>")


@dataclass(frozen=True)
class InternVLStyler(Styler):
    """A conversation form and its system text. A single image needs no label, several are numbered."""

    turns: Turns = CHATML_LINES
    system: str = SYSTEM_25
    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE}

    def stop_strings(self, chat: Chat) -> tuple[str, ...]:
        """The separator of the turns, without blanks."""
        return (self.turns.end.strip(),)

    def normalise(self, chat: Chat) -> Chat:
        """Write a placeholder for each image, the code's way."""
        chat = super().normalise(chat)
        lines = iter(self.media_lines(chat))
        messages = (
            replace(message, content=text_with_placeholders(message, lambda _: next(lines)))
            if message.media
            else message
            for message in chat.messages
        )
        return replace(chat, messages=tuple(messages))

    def media_lines(self, chat: Chat) -> list[str]:
        """The line of each image."""
        if len(chat.media) == 1:
            return [IMAGE]
        return [f"Image-{number}: {IMAGE}" for number in range(1, len(chat.media) + 1)]

    def build(self, chat: Chat) -> str:
        """Write the system turn, the turns, and the opening of the answer."""
        messages = chat.messages
        system = self.system
        if messages[0].role == Role.SYSTEM:
            system, messages = messages[0].text, messages[1:]
        turns = "".join(self.turns.write(message.role, message.text) for message in messages)
        opening = self.turns.open(Role.ASSISTANT) if chat.add_generation_prompt else ""
        return self.turns.write(Role.SYSTEM, system) + turns + opening


@dataclass(frozen=True)
class InternVideoStyler(InternVLStyler):
    """A video is its frames, a line for each; the template variable `num_frames` says how many."""

    slots: ClassVar[Mapping[str, str]] = {"image": IMAGE, "video": IMAGE}

    def media_lines(self, chat: Chat) -> list[str]:
        """The lines of each image or video."""
        return [
            IMAGE if media.kind == "image" else "\n".join(f"Frame{n}: {IMAGE}" for n in range(1, _num_frames(chat) + 1))
            for media in chat.media
        ]

    def slot_owners(self, chat: Chat) -> tuple[int, ...]:
        """Every frame is a slot of its video."""
        return tuple(
            index
            for index, media in enumerate(chat.media)
            for _ in range(1 if media.kind == "image" else _num_frames(chat))
        )


def _num_frames(chat: Chat) -> int:
    num_frames = chat.template_kwargs.get("num_frames")
    if not isinstance(num_frames, int) or num_frames < 1:
        raise StylerError("a video needs the number of its frames as num_frames", param="chat_template_kwargs")
    return num_frames


ROWS = (
    InternVLStyler("internvl2-internlm2", ("internvl2",), turns=CHATML, system=SYSTEM_2),
    InternVLStyler("internvl2-qwen2", turns=CHATML, system=SYSTEM_2),
    InternVLStyler("internvl2-phi3", turns=PHI3, system=SYSTEM_2),
    InternVLStyler("internvl2_5", ("internvl2.5",)),
    InternVLStyler("internvl3-conversation"),
    InternVideoStyler("internvideo2_5", ("internvideo2.5",)),
)
