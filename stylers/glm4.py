"""GLM-4-9b: tools in a system message of their own, calls as a name and JSON.

Source: tokenizer_config.json of THUDM/glm-4-9b-chat. Its template reads the tools from the key "tools" of a message and
a call's name from "metadata".
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role
from stylers.parsing.bare_calls import NamedTurns
from stylers.tools import ToolFormat, to_json

SYSTEM = (
    "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱AI训练的语言模型 GLM-4 模型开发的，"  # noqa: RUF001 - as trained
    "你的任务是针对用户的问题和要求提供适当的答复和支持。\n\n# 可用工具"
)
HOW_TO_CALL = "在调用上述函数时，请使用 Json 格式表示调用的参数。"  # noqa: RUF001 - as trained
CALLS = CallFormat(before_name="", before_arguments="\n", parallel=False)


@dataclass(frozen=True)
class GLM4Styler(Styler):
    """A text and each of its calls are turns of their own; results are the observation's."""

    stop: ClassVar[tuple[str, ...]] = ("<|endoftext|>", "<|user|>", "<|observation|>")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, NamedTurns("<|assistant|>"))

    def build(self, chat: Chat) -> str:
        """Write the turns; a message without text is none."""
        turns = "".join(map(_turn, chat.messages))
        return f"[gMASK]<sop>{turns}{'<|assistant|>' if chat.add_generation_prompt else ''}"

    def shows_tools(self) -> bool:
        """Only those that stand in a message, which `write_tools` sees to."""
        return False

    def write_tools(self, chat: Chat) -> Chat:
        """Give the tools a system message of their own, calls and results turns of their own."""
        if not self.template_mentions("tools"):
            return super().write_tools(chat)
        system = Message(Role.SYSTEM, "", extra={"tools": [tool.source for tool in chat.tools]})
        turns = (turn for message in chat.messages for turn in _turns(message))
        return replace(chat, messages=(system, *turns), tools=())


def _turn(message: Message) -> str:
    tools = message.extra.get("tools")
    block = f"<|system|>\n{SYSTEM}{''.join(map(_definition, tools))}" if isinstance(tools, list) else ""
    text = f"<|{message.role}|>{message.extra.get('metadata', '')}\n{message.text}" if message.text else ""
    return block + text


def _definition(tool: dict[str, dict[str, object]]) -> str:
    """Write one tool. The template has an empty line before it, of which rendering leaves one newline."""
    function = tool["function"]
    return f"\n## {function['name']}\n\n{to_json(function, indent=4)}\n{HOW_TO_CALL}"


def _turns(message: Message) -> Iterator[Message]:
    if message.role == Role.TOOL:
        yield replace(message, role="observation")
        return
    if message.text or not message.tool_calls:
        yield replace(message, tool_calls=())
    for call in message.tool_calls:
        yield Message(Role.ASSISTANT, call.arguments, extra={"metadata": call.name})


ROWS = (GLM4Styler("glm-4-9b-chat", ("glm4", "glm-4")),)
