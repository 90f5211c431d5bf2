"""gpt-oss: harmony messages. Source: chat_template.jinja of openai/gpt-oss-20b; openai/harmony, docs/format.md."""

from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler, Supports
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message
from stylers.errors import StylerError
from stylers.parsing.answer import Grammar
from stylers.parsing.harmony import HarmonyGrammar

CALLS = CallFormat(
    before_name="<|channel|>commentary to=functions.",
    before_arguments=" <|constrain|>json<|message|>",
    parallel=False,
)


@dataclass(frozen=True)
class GptOssStyler(Styler):
    """The folder's template is rendered; `reasoning_effort` is one of its variables."""

    stop: ClassVar[tuple[str, ...]] = ("<|return|>", "<|call|>", "<|endoftext|>")

    @property
    def supports(self) -> Supports:
        """Calls and reasoning are messages of their own, not tags."""
        return Supports(tools="native", reasoning=True)

    @property
    def call_format(self) -> CallFormat:
        """How calls are written."""
        return CALLS

    def write_tools(self, chat: Chat) -> Chat:
        """Tools have a place in the developer message of the model's own template, and nowhere else."""
        raise StylerError(f"the chat template of {self.name} shows no tools", param="tools")

    def grammar(self, prefilled_think: bool) -> Grammar:
        """Read harmony messages."""
        return HarmonyGrammar(self.settings.split_reasoning)

    def repair(self, chat: Chat) -> Chat:
        """Let no text stand beside both reasoning and a call."""
        return replace(chat, messages=tuple(map(_text_as_reasoning, chat.messages)))


def _text_as_reasoning(message: Message) -> Message:
    if not (message.tool_calls and message.reasoning and message.text):
        return message
    return replace(message, reasoning=f"{message.reasoning}\n\n{message.text}", content="")


ROWS = (GptOssStyler("gpt-oss"),)
