"""Qwen 2.5: ChatML with tools in the system turn and calls as JSON in `<tool_call>` tags.

Source: tokenizer_config.json of Qwen/Qwen2.5-7B-Instruct and Qwen/Qwen2.5-Coder-7B-Instruct, 2024-09-19; of
Qwen/Qwen2.5-Math-7B-Instruct and Qwen/QwQ-32B-Preview (2024-11-29), which differ in the system text; of
OpenGVLab/InternVL3-8B, which does not differ.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from stylers import chatml, qwen2
from stylers.chat import Chat, Message, Role, ToolCall, ToolDefinition
from stylers.chatml import ChatMLStyler
from stylers.tools import HERMES_CALLS, HERMES_READER, ToolFormat, tagged_result, to_json

SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MATH_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
PREVIEW_SYSTEM = (
    "You are a helpful and harmless assistant. You are Qwen developed by Alibaba. You should think step-by-step."
)


def tools_block(tools: Sequence[ToolDefinition]) -> str:
    """Write the part of the system text that introduces the tools."""
    definitions = "\n".join(to_json(tool.source) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{definitions}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def system_turn(chat: Chat, default: str | None) -> str:
    """Write the system turn, with the tools in it."""
    first = chat.messages[0]
    text = first.text if first.role == Role.SYSTEM else default
    if chat.tools:
        before = "" if text is None else f"{text}\n\n"
        return chatml.turn(Role.SYSTEM, before + tools_block(chat.tools))
    return "" if text is None else chatml.turn(Role.SYSTEM, text)


def turns(messages: Sequence[Message], turn: Callable[[int, Message], str]) -> str:
    """Write the turns behind the system turn: neighbouring results as one turn of the user, others by `turn`.

    `turn` gets a message and its place.
    """
    numbered = list(enumerate(messages))
    behind = numbered[1:] if messages[0].role == Role.SYSTEM else numbered
    written = []
    for is_result, group in groupby(behind, lambda each: each[1].role == Role.TOOL):
        if is_result:
            written.append(chatml.turn(Role.USER, "\n".join(tagged_result(message) for _, message in group)))
        else:
            written += [turn(index, message) for index, message in group]
    return "".join(written)


def call(made: ToolCall) -> str:
    """Write a call with its tags. Arguments that are no JSON stand as a string."""
    return f'<tool_call>\n{{"name": "{made.name}", "arguments": {to_json(made.arguments_object())}}}\n</tool_call>'


def assistant_turn(content: str, calls: Iterable[ToolCall]) -> str:
    """Write a turn of the assistant that holds calls."""
    lines = [content] if content else []
    return chatml.turn(Role.ASSISTANT, "\n".join([*lines, *map(call, calls)]))


@dataclass(frozen=True)
class Qwen25Styler(ChatMLStyler):
    """Calls and results are parts of turns; the rest is ChatML."""

    default_system: str | None = SYSTEM
    stop: ClassVar[tuple[str, ...]] = qwen2.STOP
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(HERMES_CALLS, HERMES_READER)
    builder_shows_tools: ClassVar[bool] = True

    def build(self, chat: Chat) -> str:
        """Write the system turn, the turns of the conversation and the opening of the answer."""
        written = turns(chat.messages, self.turn)
        return system_turn(chat, self.default_system) + written + chatml.opening(chat)

    def turn(self, index: int, message: Message) -> str:
        """Write one message that is no result."""
        if message.role == Role.ASSISTANT and message.tool_calls:
            return assistant_turn(message.text, message.tool_calls)
        return chatml.turn(message.role, message.text)


ROWS = (
    Qwen25Styler("qwen2.5", ("qwen2.5-1m",)),
    Qwen25Styler("qwen2.5-math", default_system=MATH_SYSTEM),
    Qwen25Styler("qwen2.5-coder"),
    Qwen25Styler("qwq-32b-preview", default_system=PREVIEW_SYSTEM),
    Qwen25Styler("internvl3"),
)
