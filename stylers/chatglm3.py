"""ChatGLM3: turns of named roles, calls as a name and a block of Python.

Source: tokenizer_config.json and tokenization_chatglm.py of THUDM/chatglm3-6b; THUDM/ChatGLM3, PROMPT_en.md and
openai_api_demo/utils.py. The model's code builds token ids; the blank before each text stands for the one that its
tokenizer puts in front. The template has no place for a call's name behind its role, where the builder writes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
from stylers.chat import Chat, Message, Role, ToolDefinition
from stylers.parsing.bare_calls import NamedCodeTurns
from stylers.tools import ToolFormat, to_json

INTRODUCTION = "Answer the following questions as best as you can. You have access to the following tools:"
CALLS = CallFormat(
    before_name="",
    before_arguments="\n ```python\ntool_call(",
    after_arguments=")\n```",
    layout=ParameterLayout("", "=", "", ", ", values="python"),
    parallel=False,
)


@dataclass(frozen=True)
class ChatGLM3Styler(Styler):
    """A text and each of its calls are turns of their own; results are the observation's."""

    stop: ClassVar[tuple[str, ...]] = ("</s>", "<|user|>", "<|observation|>")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, NamedCodeTurns("<|assistant|>"))

    def build(self, chat: Chat) -> str:
        """Write the items: role and metadata, a newline, a blank and the text."""
        items = "".join(
            f"<|{message.role}|>{message.extra.get('metadata', '')}\n {message.text}" for message in chat.messages
        )
        return f"[gMASK]sop{items}{'<|assistant|>' if chat.add_generation_prompt else ''}"

    def write_tools(self, chat: Chat) -> Chat:
        """Write tools as the first system item, calls and results as items of their own."""
        names_in_metadata = self._template() is None
        system = Message(Role.SYSTEM, f"{INTRODUCTION}\n{_definitions(chat.tools)}")
        messages = (item for message in chat.messages for item in _items(message, names_in_metadata))
        return replace(chat, messages=(system, *messages), tools=())


def _definitions(tools: Sequence[ToolDefinition]) -> str:
    return to_json([tool.function for tool in tools], indent=4)


def _items(message: Message, names_in_metadata: bool) -> Iterator[Message]:
    if message.role == Role.TOOL:
        yield replace(message, role="observation")
        return
    if message.text or not message.tool_calls:
        yield replace(message, tool_calls=())
    for call in message.tool_calls:
        text = CALLS.write((call,))
        if names_in_metadata:
            block = text.removeprefix(f"{call.name}\n ")
            yield Message(Role.ASSISTANT, block, extra={"metadata": call.name})
        else:
            yield Message(Role.ASSISTANT, text)


ROWS = (ChatGLM3Styler("chatglm3"),)
