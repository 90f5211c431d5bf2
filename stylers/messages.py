"""Putting messages right: small pure functions that families combine in `normalise`, and the form templates read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from stylers.chat import Media, Message, Part, Role, Text, ToolCall
from stylers.errors import StylerError


@dataclass(frozen=True, slots=True)
class TemplateDialect:
    """How a family's template wants what OpenAI leaves open.

    arguments: of calls, as an object (text where they are no JSON), as an object or not at all (strict), or as JSON
    text. null_content: kept as None where the template asks for it, else an empty text, because most templates fail
    on None or print the word. no_tools: what the template's `tools` is where the request has none.
    """

    arguments: Literal["object", "strict", "text"] = "object"
    null_content: Literal["empty", "kept"] = "empty"
    no_tools: Literal["none", "empty"] = "none"


def to_system_role(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Turn the developer role, which open models do not know, into the system role."""
    return tuple(
        replace(message, role=Role.SYSTEM) if message.role == Role.DEVELOPER else message for message in messages
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


def fold_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put the system text in front of the next message, for families without a system role."""
    first, *rest = messages
    if first.role != Role.SYSTEM or not rest:
        return messages
    return (join_messages(first, rest[0], rest[0].role), *rest[1:])


def alternating(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Let user and assistant take turns: what is neither is the user's, and neighbours of a role become one message.

    The user begins, if need be with an empty message.
    """
    turns: list[Message] = []
    for message in messages:
        role = Role.ASSISTANT if message.role == Role.ASSISTANT else Role.USER
        if turns and turns[-1].role == role:
            turns[-1] = join_messages(turns[-1], message, role)
        else:
            turns.append(replace(message, role=role))
    if turns and turns[0].role == Role.ASSISTANT:
        turns.insert(0, Message(Role.USER, ""))
    return tuple(turns)


def join_messages(first: Message, second: Message, role: str) -> Message:
    """Make one message of two, with an empty line between their texts."""
    if first.media or second.media:
        content: str | tuple[Part, ...] = (*_parts(first), Text("\n\n"), *_parts(second))
    else:
        content = "\n\n".join(filter(None, (first.text, second.text)))
    return replace(second, role=role, content=content, tool_calls=(*first.tool_calls, *second.tool_calls))


def _parts(message: Message) -> tuple[Part, ...]:
    return message.content if isinstance(message.content, tuple) else (Text(message.text),)


def one_call_each(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Give every call a message of its own, its result behind it, for families that know no parallel calls."""
    single: list[Message] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if len(message.tool_calls) < 2:
            single.append(message)
            continue
        results = list(takewhile(lambda following: following.role == Role.TOOL, rest))
        del rest[: len(results)]
        for call in message.tool_calls:
            single.append(replace(message, tool_calls=(call,)))
            answer = next((result for result in results if result.tool_call_id in (call.id, None)), None)
            if answer is not None:
                results.remove(answer)
                single.append(answer)
            message = replace(message, content="")
        single += results
    return tuple(single)


def template_messages(
    messages: Sequence[Message], dialect: TemplateDialect, reads_parts: Callable[[str, bool], bool]
) -> list[dict[str, object]]:
    """Return messages as the dictionaries that templates read.

    `reads_parts`: whether content of a role may be a list, of one part or of several. Where a template cannot read one
    of the lists, the texts of all are joined by newlines.
    """
    lists = [(message.role, message.content) for message in messages if isinstance(message.content, tuple)]
    keep_parts = all(reads_parts(role, len(parts) > 1) for role, parts in lists)
    return [_template_message(message, dialect, keep_parts) for message in messages]


def _template_message(message: Message, dialect: TemplateDialect, keep_parts: bool) -> dict[str, object]:
    content: object = message.text
    if isinstance(message.content, tuple) and (keep_parts or message.media):
        content = template_parts(message.content)
    elif message.content is None and message.tool_calls and dialect.null_content == "kept":
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
    return {"role": str(message.role), "content": content, **known, **message.extra}


def template_parts(parts: Iterable[Part]) -> list[dict[str, str]]:
    """Return content parts as the dictionaries that templates read."""
    return [{"type": part.kind} if isinstance(part, Media) else {"type": "text", "text": part.text} for part in parts]


def _template_call(call: ToolCall, dialect: TemplateDialect) -> dict[str, object]:
    arguments = call.arguments if dialect.arguments == "text" else call.arguments_object()
    if dialect.arguments == "strict" and not isinstance(arguments, dict):
        raise StylerError(f"the arguments of the call of {call.name!r} are no JSON object", param="messages")
    known = {"id": call.id} if call.id is not None else {}
    return {**known, "type": "function", "function": {"name": call.name, "arguments": arguments}}
