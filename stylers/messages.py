"""Putting messages right: small pure functions that families combine in `normalise`, and the form templates read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from stylers.chat import Media, Message, Part, Role, Text, ToolCall
from stylers.errors import StylerError


@dataclass(frozen=True, slots=True)
class TemplateDialect:
    """How a family's template wants what OpenAI leaves open.

    arguments: of calls, as an object or as JSON text. null_content: kept as None where the template asks for it,
    else an empty text, because most templates fail on None or print the word.
    """

    arguments: Literal["object", "text"] = "object"
    null_content: Literal["empty", "kept"] = "empty"


def to_system_role(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Turn the developer role, which open models do not know, into the system role."""
    return tuple(
        replace(message, role=Role.SYSTEM) if message.role is Role.DEVELOPER else message for message in messages
    )


def mark_final_message(messages: tuple[Message, ...], mark: str) -> tuple[Message, ...]:
    """Write `mark` behind the last text of the last message."""
    *earlier, last = messages
    if isinstance(last.content, str):
        return (*earlier, replace(last, content=last.content + mark))
    parts = list(last.content or ())
    for index in reversed(range(len(parts))):
        part = parts[index]
        if isinstance(part, Text):
            parts[index] = Text(part.text + mark)
            return (*earlier, replace(last, content=tuple(parts)))
    raise StylerError("the final message has no text to continue", param="continue_final_message")


def template_messages(
    messages: Iterable[Message], dialect: TemplateDialect, *, keep_parts: bool
) -> list[dict[str, object]]:
    """Return messages as the dictionaries that templates read.

    `keep_parts`: the template understands lists of content parts. Others get their texts joined by a newline, because
    they would drop a list or print it as Python.
    """
    return [_template_message(message, dialect, keep_parts) for message in messages]


def _template_message(message: Message, dialect: TemplateDialect, keep_parts: bool) -> dict[str, object]:
    content: object = message.text
    if isinstance(message.content, tuple) and (keep_parts or message.media):
        content = [_template_part(part) for part in message.content]
    if message.content is None and dialect.null_content == "kept":
        content = None
    # Reasoning goes by both names that templates know.
    optional = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning,
        "thinking": message.reasoning,
        "tool_calls": [_template_call(call, dialect) for call in message.tool_calls] or None,
    }
    known = {key: value for key, value in optional.items() if value is not None}
    return {"role": str(message.role), "content": content, **known}


def _template_part(part: Part) -> dict[str, object]:
    if isinstance(part, Media):
        return {"type": part.kind}
    return {"type": "text", "text": part.text}


def _template_call(call: ToolCall, dialect: TemplateDialect) -> dict[str, object]:
    arguments = call.arguments_object() if dialect.arguments == "object" else call.arguments
    known = {"id": call.id} if call.id is not None else {}
    return {**known, "type": "function", "function": {"name": call.name, "arguments": arguments}}
