"""Prompts in, messages out: how each model family wants to be asked, and how its answers are read.

    styler = stylers.get("qwen3").for_model(chat_template=..., bos_token=..., eos_token=...)
    prompt = styler.build_prompt(stylers.Chat.from_openai(request))
    parser = styler.new_parser(tools=chat.tools, prefilled_think=prompt.prefilled_think)
    deltas = [*parser.feed(text), *parser.flush("stop")]

The package does no I/O, knows no token ids and imports nothing of the server.
"""

from stylers import generic, smollm2
from stylers.base import Styler, Supports
from stylers.chat import Chat, Media, Message, Role, Text, ToolCall, ToolChoice, ToolDefinition
from stylers.detect import detect
from stylers.errors import StylerError
from stylers.output import Delta, OutputParser, ParsedMessage, ToolCallDelta, merge
from stylers.prompt import ImageSlot, Prompt, TextPiece
from stylers.registry import get, names, register_styler

__all__ = [
    "Chat",
    "Delta",
    "ImageSlot",
    "Media",
    "Message",
    "OutputParser",
    "ParsedMessage",
    "Prompt",
    "Role",
    "Styler",
    "StylerError",
    "Supports",
    "Text",
    "TextPiece",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolDefinition",
    "detect",
    "get",
    "merge",
    "names",
    "register_styler",
]

for _family in (generic, smollm2):
    register_styler(*_family.ROWS)
