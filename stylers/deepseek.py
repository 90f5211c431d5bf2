"""DeepSeek-V3, V3.1 and the R1 distills.

Source: tokenizer_config.json of deepseek-ai/DeepSeek-R1-Distill-Qwen-7B (2025-02-09; the Llama distills have the same),
DeepSeek-V3 and DeepSeek-V3.1; the tool text of V3.1: the model card of deepseek-ai/DeepSeek-V3.1. The templates show
calls and results of the history, but no tool definitions. V3's loses a call that stands behind text, and never closes a
single one: calls are written into the text instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role, ToolDefinition
from stylers.messages import TemplateDialect
from stylers.parsing.json_calls import HeadedCalls
from stylers.tools import ToolFormat, ToolText, introduction, to_json


def token(name: str) -> str:
    """Write one of the special tokens, whose bars are fullwidth and whose blanks are U+2581."""
    return f"<\uff5c{name.replace(' ', chr(0x2581))}\uff5c>"


USER, ASSISTANT, END = token("User"), token("Assistant"), token("end of sentence")
CALLS_BEGIN, CALLS_END = token("tool calls begin"), token("tool calls end")
CALL_BEGIN, CALL_END, SEPARATOR = token("tool call begin"), token("tool call end"), token("tool sep")
OUTPUTS_BEGIN, OUTPUTS_END = token("tool outputs begin"), token("tool outputs end")
OUTPUT_BEGIN, OUTPUT_END = token("tool output begin"), token("tool output end")
THINK = ("<think>", "</think>")

V3_CALLS = CallFormat(
    begin=CALLS_BEGIN,
    before_name=f"{CALL_BEGIN}function{SEPARATOR}",
    before_arguments="\n```json\n",
    after_arguments=f"\n```{CALL_END}",
    separator="\n",
    end=CALLS_END,
)
V3_READER = HeadedCalls(
    begin=CALL_BEGIN,
    before_name=f"function{SEPARATOR}",
    before_arguments=("```json",),
    ends=("```", CALL_END),
    section=(CALLS_BEGIN, CALLS_END),
)
V31_CALLS = CallFormat(
    begin=CALLS_BEGIN, before_name=CALL_BEGIN, before_arguments=SEPARATOR, after_arguments=CALL_END, end=CALLS_END
)
V31_READER = HeadedCalls(
    begin=CALL_BEGIN, before_arguments=(SEPARATOR,), ends=(CALL_END,), section=(CALLS_BEGIN, CALLS_END)
)


def v31_block(tools: Sequence[ToolDefinition]) -> str:
    """Introduce the tools as the model card shows it."""
    described = "\n".join(
        f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {to_json(tool.parameters)}\n"
        for tool in tools
    )
    return (
        f"## Tools\nYou have access to the following tools:\n\n{described}\n"
        "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
        f"{CALLS_BEGIN}{CALL_BEGIN}tool_call_name{SEPARATOR}tool_call_arguments{CALL_END}"
        f"{{additional_tool_calls}}{CALLS_END}\n\n"
        "Where:\n- `tool_call_name` must be an exact match to one of the available tools\n"
        "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
        "- For multiple tool calls, chain them directly without separators or spaces"
    )


@dataclass(frozen=True)
class DeepSeekV3Styler(Styler):
    """Arguments stay text, and null content marks a turn that is only calls."""

    stop: ClassVar[tuple[str, ...]] = (END,)
    dialect: ClassVar[TemplateDialect] = TemplateDialect(arguments="text", null_content="kept")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(
        V3_CALLS, V3_READER, ToolText(partial(introduction, V3_CALLS), V3_CALLS, before_calls="")
    )


@dataclass(frozen=True)
class DeepSeekV31Styler(DeepSeekV3Styler):
    """`thinking` in the template's variables opens the reasoning in the prompt."""

    think: ClassVar[tuple[str, str] | None] = THINK
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(V31_CALLS, V31_READER, ToolText(v31_block))


@dataclass(frozen=True)
class DeepSeekR1DistillStyler(DeepSeekV3Styler):
    """V3's turns and calls; the prompt opens the reasoning, and earlier turns lose it."""

    think: ClassVar[tuple[str, str] | None] = THINK

    def build(self, chat: Chat) -> str:
        """Write the last system text, the turns, and the opening of the answer unless results come last."""
        system = [message.text for message in chat.messages if message.role == Role.SYSTEM][-1:]
        turns = _Turns()
        for message in chat.messages:
            turns.add(message)
        return self.settings.bos_token + "".join(system) + turns.end(chat.add_generation_prompt)


class _Turns:
    """The turns as the template writes them; what it writes of a call or result depends on those before."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._after_results = False
        self._has_calls = False
        self._has_results = False

    def add(self, message: Message) -> None:
        """Write one message."""
        if message.role == Role.USER:
            self._after_results = False
            self._parts.append(USER + message.text)
        elif message.role == Role.TOOL:
            self._add_result(message.text)
        elif message.role == Role.ASSISTANT and message.content is None and message.tool_calls:
            self._after_results = False
            for call in message.tool_calls:
                self._add_call(call.name, call.arguments)
        elif message.role == Role.ASSISTANT:
            before = OUTPUTS_END if self._after_results else ASSISTANT
            content = message.text if self._after_results else message.text.split(THINK[1])[-1]
            self._after_results = False
            self._parts.append(before + content + END)

    def _add_call(self, name: str, arguments: str) -> None:
        call = V3_CALLS.before_name + name + V3_CALLS.before_arguments + arguments + V3_CALLS.after_arguments
        if self._has_calls:
            self._parts.append(f"\n{call}{CALLS_END}{END}")
        else:
            self._parts.append(f"{ASSISTANT}{CALLS_BEGIN}{call}")
        self._has_calls = True

    def _add_result(self, text: str) -> None:
        self._after_results = True
        self._parts.append("\n" if self._has_results else OUTPUTS_BEGIN)
        self._parts.append(OUTPUT_BEGIN + text + OUTPUT_END)
        self._has_results = True

    def end(self, add_generation_prompt: bool) -> str:
        """Return all turns, with what comes behind them."""
        if self._after_results:
            self._parts.append(OUTPUTS_END)
        elif add_generation_prompt:
            self._parts.append(f"{ASSISTANT}{THINK[0]}\n")
        return "".join(self._parts)


ROWS = (
    DeepSeekV3Styler("deepseek-v3"),
    DeepSeekV31Styler("deepseek-v3.1"),
    DeepSeekR1DistillStyler("deepseek-r1-distill-qwen", ("deepseek-r1-distill", "deepseek-r1")),
    DeepSeekR1DistillStyler("deepseek-r1-distill-llama"),
)
