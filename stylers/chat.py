"""A conversation as the stylers see it: checked once, here, and frozen.

`Chat.from_openai` is the only place that reads the dictionaries of an OpenAI request. Source of the shape: OpenAI API
reference, "Create chat completion"; the extensions (`chat_template_kwargs`, `continue_final_message`,
`reasoning_content`, `documents`) are the ones that open inference servers share.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias, TypeVar

from stylers.errors import StylerError

JsonObject: TypeAlias = Mapping[str, object]
T = TypeVar("T")

FUNCTION_NAME = re.compile(r"[\w./-]{1,64}")
"""OpenAI's rule, and the dots, slashes and letters of other scripts that frameworks and MCP servers use.

All of it can be written in every family's notation and read back; quotes, brackets and blanks cannot.
"""


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    """A text part of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a video in a message, by its URL (http, https or data)."""

    kind: Literal["image", "video"]
    url: str
    detail: str | None = None


Part: TypeAlias = Text | Media


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made. `arguments` is JSON text, exactly as the model or the client wrote it."""

    name: str
    arguments: str
    id: str | None = None

    def arguments_object(self) -> object:
        """Return the arguments as the object they are, or as their text where they are no JSON. None are {}."""
        if self.arguments.strip() in ("", "null"):
            return {}
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function the model may call. `source` is its definition as it arrived: templates print it whole."""

    name: str
    description: str
    parameters: JsonObject
    source: JsonObject = field(repr=False)

    @classmethod
    def from_openai(cls, tool: object, param: str = "tools") -> "ToolDefinition":
        """Check one entry of a request's `tools`."""
        if not isinstance(tool, Mapping):
            raise StylerError("a tool must be an object", param=param)
        if tool.get("type", "function") != "function":
            raise StylerError(f"tools of type {tool.get('type')!r} are not supported; use 'function'", param=param)
        function = tool.get("function")
        if not isinstance(function, Mapping):
            raise StylerError("a tool needs a 'function' with a 'name'", param=f"{param}.function")
        parameters = function.get("parameters")
        return cls(
            name=_function_name(function.get("name"), f"{param}.function.name"),
            description=_text(function.get("description"), f"{param}.function.description") or "",
            parameters={} if parameters is None else _object(parameters, f"{param}.function.parameters"),
            source=tool,
        )

    @property
    def function(self) -> JsonObject:
        """The definition without its `{"type": "function"}` wrapper."""
        function = self.source["function"]
        assert isinstance(function, Mapping)
        return function

    @property
    def properties(self) -> Mapping[str, object]:
        """The schemas of the parameters, by name."""
        properties = self.parameters.get("properties")
        return properties if isinstance(properties, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `content` is None where the client sent null, and a tuple where it sent a list of parts.

    role: a Role, or what a family calls its own roles. extra: keys that only a family's template knows.
    """

    role: str
    content: str | tuple[Part, ...] | None
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    extra: JsonObject = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the content; parts are joined by a newline."""
        if isinstance(self.content, tuple):
            return "\n".join(part.text for part in self.content if isinstance(part, Text))
        return self.content or ""

    @property
    def media(self) -> tuple[Media, ...]:
        """The images and videos of the content, in order."""
        if not isinstance(self.content, tuple):
            return ()
        return tuple(part for part in self.content if isinstance(part, Media))


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What the request says about calling: a mode, and the function that must be called where it names one."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """A whole conversation and how to render it. `tools` is empty where the request forbids calls."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    documents: tuple[JsonObject, ...] | None = None
    template_kwargs: JsonObject = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @classmethod
    def from_openai(cls, request: JsonObject) -> "Chat":
        """Read a chat completion request. Raises StylerError that names the part it refuses."""
        messages = tuple(each(request.get("messages"), "messages", _message))
        if not messages:
            raise StylerError("messages must hold at least one message", param="messages")
        tools = _tools(request.get("tools"))
        tool_choice = _tool_choice(request.get("tool_choice"), tools)
        continued = _flag(request, "continue_final_message", False)
        generation_prompt = _flag(request, "add_generation_prompt", not continued)
        if continued and generation_prompt:
            raise StylerError(
                "continue_final_message cannot stand beside add_generation_prompt", param="continue_final_message"
            )
        return cls(
            messages=messages,
            tools=() if tool_choice.mode == "none" else tools,
            tool_choice=tool_choice,
            documents=_documents(request.get("documents")),
            template_kwargs=_template_kwargs(request),
            add_generation_prompt=generation_prompt,
            continue_final_message=continued,
        )

    @property
    def media(self) -> tuple[Media, ...]:
        """All images and videos, in the order of the prompt."""
        return tuple(item for message in self.messages for item in message.media)


def each(value: object, param: str, read: Callable[[object, str], T]) -> Iterable[T]:
    """Read a list (or null) entry by entry; `read` gets the entry and its place, such as `messages[2]`."""
    if value is None:
        return
    if not isinstance(value, list | tuple):
        raise StylerError(f"{param} must be a list", param=param)
    for index, item in enumerate(value):
        yield read(item, f"{param}[{index}]")


def _message(message: object, param: str) -> Message:
    if not isinstance(message, Mapping):
        raise StylerError("a message must be an object", param=param)
    reasoning = next((message[key] for key in REASONING_KEYS if message.get(key) is not None), None)
    return Message(
        role=_role(message.get("role"), f"{param}.role"),
        content=_content(message.get("content"), f"{param}.content"),
        name=_text(message.get("name"), f"{param}.name"),
        reasoning=_text(reasoning, f"{param}.reasoning_content"),
        tool_calls=tuple(each(message.get("tool_calls"), f"{param}.tool_calls", _tool_call)),
        tool_call_id=_text(message.get("tool_call_id"), f"{param}.tool_call_id"),
    )


REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")  # one thing under the names that clients use for it


def _role(role: object, param: str) -> Role:
    if role is None:
        raise StylerError(f"{param} is missing", param=param)
    try:
        return Role(str(role))
    except ValueError as exc:
        raise StylerError(f"unknown role {role!r}; known are {', '.join(Role)}", param=param) from exc


def _content(content: object, param: str) -> str | tuple[Part, ...] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise StylerError(f"{param} must be a text or a list of parts", param=param)
    return tuple(each(content, param, _part))


def _part(part: object, param: str) -> Part:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, Mapping):
        raise StylerError("a content part must be an object", param=param)
    kind = part.get("type")
    if kind in ("text", "refusal"):
        return Text(_required_text(part.get(kind), f"{param}.{kind}"))
    if kind in ("image_url", "image", "video_url", "video"):
        return _media(part, str(kind), param)
    raise StylerError(f"content parts of type {kind!r} are not supported", param=f"{param}.type")


def _media(part: JsonObject, key: str, param: str) -> Media:
    """`{"type": "image_url", "image_url": {"url": ...}}`, or the shorter `{"type": "image", "image": ...}`."""
    source = part.get(key)
    if not isinstance(source, Mapping):
        source = {"url": source}
    url = _required_text(source.get("url"), f"{param}.{key}")
    detail = _text(source.get("detail"), f"{param}.{key}.detail")
    return Media("video" if key.startswith("video") else "image", url, detail)


def _tool_call(call: object, param: str) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise StylerError("a tool call needs a 'function' with 'name' and 'arguments'", param=param)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    name = _function_name(function.get("name"), f"{param}.function.name")
    return ToolCall(name, arguments, _text(call.get("id"), f"{param}.id"))


def _tools(tools: object) -> tuple[ToolDefinition, ...]:
    definitions = tuple(each(tools, "tools", ToolDefinition.from_openai))
    names: set[str] = set()
    for index, tool in enumerate(definitions):
        if tool.name in names:
            raise StylerError(f"tools has more than one function {tool.name!r}", param=f"tools[{index}].function.name")
        names.add(tool.name)
    return definitions


def _function_name(name: object, param: str) -> str:
    name = _required_text(name, param)
    if not FUNCTION_NAME.fullmatch(name):
        raise StylerError(
            f"{param} must have 1 to 64 characters, all of them letters, digits or one of _ . / -", param=param
        )
    return name


def _tool_choice(choice: object, tools: tuple[ToolDefinition, ...]) -> ToolChoice:
    if choice is None or choice == "auto":
        return ToolChoice()
    if choice == "none":
        return ToolChoice("none")
    if not tools:
        raise StylerError("tool_choice asks for a call, but the request has no tools", param="tool_choice")
    if choice == "required":
        return ToolChoice("required")
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise StylerError("tool_choice must be 'none', 'auto', 'required' or name a function", param="tool_choice")
    if name not in {tool.name for tool in tools}:
        raise StylerError(f"tool_choice names the function {name!r}, which is not in tools", param="tool_choice")
    return ToolChoice("function", name)


def _documents(documents: object) -> tuple[JsonObject, ...] | None:
    if documents is None:
        return None
    return tuple(each(documents, "documents", _object))


def _template_kwargs(request: JsonObject) -> JsonObject:
    """The template's own switches: chat_template_kwargs, over the few that have a name of their own in requests."""
    named = {key: request[key] for key in ("enable_thinking", "reasoning_effort") if request.get(key) is not None}
    kwargs = request.get("chat_template_kwargs")
    if kwargs is None:
        return named
    return {**named, **_object(kwargs, "chat_template_kwargs")}


def _object(value: object, param: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise StylerError(f"{param} must be an object", param=param)
    return value


def _flag(request: JsonObject, key: str, default: bool) -> bool:
    value = request.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise StylerError(f"{key} must be true or false", param=key)
    return value


def _text(value: object, param: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise StylerError(f"{param} must be a string", param=param)
    return value


def _required_text(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise StylerError(f"{param} must be a string", param=param)
    return value
