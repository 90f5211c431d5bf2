"""What a styler hands to the tokenizer: the prompt in pieces, and what the engine must know about its answer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A run of prompt text.

    In a `literal` piece nothing is a special or added token, whatever it looks like: a user typed it. Other pieces
    are encoded as usual. No piece wants special tokens added: the prompt holds its own BOS where it has one.
    """

    text: str
    literal: bool = False


@dataclass(frozen=True, slots=True)
class ImageSlot:
    """The place of an image or video: its placeholder token once, to be repeated for each row of its embedding.

    `index` counts the images and videos of the chat from 0, in the order of the prompt.
    """

    text: str
    index: int
    kind: Literal["image", "video"] = "image"


Piece: TypeAlias = TextPiece | ImageSlot


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. `prefilled_think`: it has opened the reasoning, so the answer begins inside it."""

    pieces: tuple[Piece, ...]
    stop: tuple[str, ...] = ()
    prefilled_think: bool = False

    @property
    def text(self) -> str:
        """The pieces joined: what the model's own template would print."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def image_slots(self) -> tuple[ImageSlot, ...]:
        """The slots alone, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, ImageSlot))
