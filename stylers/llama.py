"""Llama 3 to 3.3: turns with headers; from 3.1 on calls as a bare JSON object.

Source: tokenizer_config.json of meta-llama/Meta-Llama-3-8B-Instruct (with add_generation_prompt),
Llama-3.1-8B-Instruct, Llama-3.2-3B-Instruct, Llama-3.2-11B-Vision-Instruct and Llama-3.3-70B-Instruct; the Python
form of calls that the 1B and 3B models write: the prompt formats page of Llama 3.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role, ToolDefinition
from stylers.errors import StylerError
from stylers.messages import one_call_each, template_parts
from stylers.parsing.json_calls import BareObjects
from stylers.parsing.python_calls import BareCalls
from stylers.tools import ToolFormat, to_json

END = "<|eot_id|>"
STOP_31 = (END, "<|eom_id|>", "<|end_of_text|>")
PYTHON_TAG = "<|python_tag|>"
DATE = "26 Jul 2024"
CALLS = CallFormat('{"name": "', '", "parameters": ', "}", parallel=False)
RESPOND = (
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)
IN_SYSTEM = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call."
)
IN_USER = (
    "Given the following functions, please respond with a JSON for a function call "
    "with its proper arguments that best answers the given prompt.\n\n"
)
TEMPLATE_ONLY = ("builtin_tools", "custom_tools")


def header(role: str) -> str:
    """Open a turn."""
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def turn(role: str, text: str) -> str:
    """One whole turn."""
    return f"{header(role)}{text}{END}"


@dataclass(frozen=True)
class Llama3Styler(Styler):
    """Every message is a turn of its role, without blanks at its ends."""

    stop: ClassVar[tuple[str, ...]] = (END, "<|end_of_text|>")

    def build(self, chat: Chat) -> str:
        """Write BOS, the turns and the opening of the answer."""
        turns = "".join(turn(message.role, message.text.strip()) for message in chat.messages)
        return self.settings.bos_token + turns + (header(Role.ASSISTANT) if chat.add_generation_prompt else "")


@dataclass(frozen=True)
class Llama32Styler(Styler):
    """One call in a turn. The small text models also write lists of Python calls."""

    stop: ClassVar[tuple[str, ...]] = STOP_31
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, BareCalls(PYTHON_TAG))

    def repair(self, chat: Chat) -> Chat:
        """Give each call a turn of its own."""
        return replace(chat, messages=one_call_each(chat.messages))


@dataclass(frozen=True)
class LlamaVisionStyler(Llama32Styler):
    """An image is one token; the picture is seen through cross attention."""

    slots: ClassVar[Mapping[str, str]] = {"image": "<|image|>"}


@dataclass(frozen=True)
class Llama31Styler(Llama32Styler):
    """The system turn has dates; tools stand in the first question, or in the system turn."""

    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, BareObjects(PYTHON_TAG))
    builder_shows_tools: ClassVar[bool] = True

    def build(self, chat: Chat) -> str:
        """Write the prompt; `date_string` and `tools_in_user_message` are heeded, built-in tools are refused."""
        for key in TEMPLATE_ONLY:
            if key in chat.template_kwargs:
                raise StylerError(f"{key!r} needs the model's own template", param="chat_template_kwargs")
        first, behind = chat.messages[0], chat.messages[1:]
        if first.role != Role.SYSTEM:
            first, behind = Message(Role.SYSTEM, ""), chat.messages
        in_user = bool(chat.tools) and bool(chat.template_kwargs.get("tools_in_user_message", True))
        question = ""
        if in_user:
            if not behind:
                raise StylerError("tools need a user message to stand in", param="messages")
            question = turn(Role.USER, IN_USER + RESPOND + _definitions(chat.tools) + behind[0].text.strip())
            behind = behind[1:]
        system = self._system(chat, first.text.strip(), shows_tools=bool(chat.tools) and not in_user)
        opening = header(Role.ASSISTANT) if chat.add_generation_prompt else ""
        return self.settings.bos_token + system + question + "".join(map(_turn, behind)) + opening

    def _system(self, chat: Chat, text: str, *, shows_tools: bool) -> str:
        environment = "Environment: ipython\n" if chat.tools else ""
        dates = (
            f"Cutting Knowledge Date: December 2023\nToday Date: {chat.template_kwargs.get('date_string', DATE)}\n\n"
        )
        tools = IN_SYSTEM + RESPOND + _definitions(chat.tools) if shows_tools else ""
        return turn(Role.SYSTEM, environment + dates + tools + text)


def _definitions(tools: Sequence[ToolDefinition]) -> str:
    return "".join(f"{to_json(tool.source, indent=4)}\n\n" for tool in tools)


def _turn(message: Message) -> str:
    if len(message.tool_calls) > 1:
        raise StylerError("the model makes one call in a turn", param="messages")
    if message.tool_calls:  # a turn that calls shows nothing else
        return turn(Role.ASSISTANT, CALLS.write(message.tool_calls))
    if message.role == Role.TOOL:
        content = template_parts(message.content) if isinstance(message.content, tuple) else message.text
        return turn("ipython", to_json(content))
    return turn(message.role, message.text.strip())


ROWS = (
    Llama3Styler("llama-3"),
    Llama31Styler("llama-3.1"),
    Llama31Styler("llama-3.3"),
    Llama32Styler("llama-3.2"),
    LlamaVisionStyler("llama-3.2-vision"),
)
