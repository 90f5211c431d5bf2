"""SmolLM2: ChatML, with a system text of its own where the request has none.

Source: `chat_template` in tokenizer_config.json of HuggingFaceTB/SmolLM2-1.7B-Instruct, revision of 2024-10-31.
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers import chatml
from stylers.base import Styler
from stylers.chat import Chat, Role

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@dataclass(frozen=True)
class SmolLM2Styler(Styler):
    """Every role is a turn; the model knows neither tools nor reasoning."""

    stop: ClassVar[tuple[str, ...]] = (chatml.END,)

    def build(self, chat: Chat) -> str:
        """Write the turns; the opening stands only where the answer is asked for."""
        header = "" if chat.messages[0].role is Role.SYSTEM else chatml.turn("system", DEFAULT_SYSTEM)
        opening = chatml.opening() if chat.add_generation_prompt else ""
        return header + chatml.turns(chat.messages) + opening


ROWS = (SmolLM2Styler("smollm2"),)
