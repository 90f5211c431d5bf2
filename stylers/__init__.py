"""Prompts in, messages out: how each model family wants to be asked, and how its answers are read.

    styler = stylers.get("qwen3").for_model(chat_template=..., bos_token=..., eos_token=...)
    prompt = styler.build_prompt(stylers.Chat.from_openai(request))
    parser = styler.new_parser(tools=chat.tools, prefilled_think=prompt.prefilled_think)
    deltas = [*parser.feed(text), *parser.flush("stop")]

The package does no I/O, knows no token ids and imports nothing of the server.
"""

from stylers import (
    chatglm3,
    deepseek,
    gemma,
    gemma4,
    generic,
    glm4,
    glm45,
    gpt_oss,
    hermes,
    internlm2,
    internvl,
    janus,
    kimi,
    llama,
    minicpm,
    mistral,
    phi,
    phi4_mini,
    qwen2,
    qwen2_vl,
    qwen3,
    qwen3_coder,
    qwen25,
    qwen_react,
    qwen_vl,
    qwq,
    smollm2,
)
from stylers.base import Settings, Styler, Supports
from stylers.call_format import CallFormat, ParameterLayout
from stylers.chat import Chat, Media, Message, Role, Text, ToolCall, ToolChoice, ToolDefinition
from stylers.detect import detect
from stylers.errors import StylerError
from stylers.output import Delta, OutputParser, ParsedMessage, ToolCallDelta, merge
from stylers.prompt import ImageSlot, Prompt, TextPiece
from stylers.registry import get, names, register_styler

__all__ = [
    "CallFormat",
    "Chat",
    "Delta",
    "ImageSlot",
    "Media",
    "Message",
    "OutputParser",
    "ParameterLayout",
    "ParsedMessage",
    "Prompt",
    "Role",
    "Settings",
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

FAMILIES = (
    chatglm3,
    deepseek,
    gemma,
    gemma4,
    generic,
    glm4,
    glm45,
    gpt_oss,
    hermes,
    internlm2,
    internvl,
    janus,
    kimi,
    llama,
    minicpm,
    mistral,
    phi,
    phi4_mini,
    qwen2,
    qwen25,
    qwen2_vl,
    qwen3,
    qwen3_coder,
    qwen_react,
    qwen_vl,
    qwq,
    smollm2,
)

for _family in FAMILIES:
    register_styler(*_family.ROWS)
