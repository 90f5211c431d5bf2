"""Qwen 1.5 and Qwen 2: plain ChatML.

Source: tokenizer_config.json of Qwen/Qwen2-7B-Instruct and, since 2024-04-30, of the Qwen/Qwen1.5 chat models.
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers import chatml
from stylers.chatml import ChatMLStyler

SYSTEM = "You are a helpful assistant."
STOP = (chatml.END, "<|endoftext|>")


@dataclass(frozen=True)
class Qwen2Styler(ChatMLStyler):
    """ChatML with a default system text."""

    default_system: str | None = SYSTEM
    stop: ClassVar[tuple[str, ...]] = STOP


ROWS = (Qwen2Styler("qwen2"), Qwen2Styler("qwen1.5"))
