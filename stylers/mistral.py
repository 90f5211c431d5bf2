"""Mistral: instructions in `[INST]`, calls behind `[TOOL_CALLS]` as a list of objects or as names with arguments.

Source: tokenizer_config.json of mistralai/Mistral-Nemo-Instruct-2407 and Mistral-Small-24B-Instruct-2501; the template
that llama.cpp keeps for Mistral-Small-3.2-24B-Instruct-2506; the tokenizer guide of mistral-common (versions 3, 7, 11).
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role
from stylers.messages import join_messages
from stylers.parsing.answer import Answer
from stylers.parsing.json_calls import HeadedCalls, ObjectList, object_list
from stylers.parsing.reader import Steps, ignore
from stylers.tools import ToolFormat

MARKER = "[TOOL_CALLS]"
CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
ID_RUN = re.compile(r"[a-zA-Z0-9]*")
LIST_CALLS = CallFormat(
    begin=f"{MARKER}[",
    before_name='{"name": "',
    before_arguments='", "arguments": ',
    after_arguments="}",
    separator=", ",
    end="]",
)
NAMED_CALLS = CallFormat(before_name=MARKER, before_arguments="[ARGS]")


@dataclass(frozen=True)
class NamedCalls(HeadedCalls):
    """`[TOOL_CALLS]NAME[ARGS]{...}`, maybe with a call id between; a list of objects is read as well."""

    def read(self, answer: Answer) -> Steps[bool]:
        """Read a call of either form."""
        if (yield from answer.reader.spaced("[")):
            yield from object_list(answer)
            return True
        return (yield from super().read(answer))

    def between(self, answer: Answer) -> Steps[None]:
        """Read the id, which only history needs."""
        if (yield from answer.reader.spaced("[CALL_ID]")):
            yield from answer.reader.run(ID_RUN, ignore)


@dataclass(frozen=True)
class MistralStyler(Styler):
    """Roles alternate, and call ids have nine letters or digits; both are put right."""

    stop: ClassVar[tuple[str, ...]] = ("</s>",)
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(LIST_CALLS, ObjectList(MARKER))

    def repair(self, chat: Chat) -> Chat:
        """Join neighbours of a role, fill in turns that are missing, and shorten ids."""
        first, *rest = with_ids(chat.messages)
        if first.role == Role.SYSTEM:
            return replace(chat, messages=(first, *taking_turns(rest)))
        return replace(chat, messages=taking_turns((first, *rest)))


@dataclass(frozen=True)
class MistralSmall2501Styler(MistralStyler):
    """The template knows neither tools nor results."""

    tool_format: ClassVar[ToolFormat | None] = None

    def repair(self, chat: Chat) -> Chat:
        """Let the user say the results."""
        messages = (
            replace(message, role=Role.USER) if message.role == Role.TOOL else replace(message, tool_calls=())
            for message in chat.messages
        )
        return super().repair(replace(chat, messages=tuple(messages)))


@dataclass(frozen=True)
class MistralSmall32Styler(MistralStyler):
    """Images, and calls by name."""

    slots: ClassVar[Mapping[str, str]] = {"image": "[IMG]"}
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(NAMED_CALLS, NamedCalls(MARKER, ("[ARGS]",)))


def taking_turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Let user and assistant alternate. Calls and results do not count, and stand where they are."""
    turns: list[Message] = []
    expected, other = Role.USER, Role.ASSISTANT
    for message in messages:
        if message.role == Role.TOOL or message.tool_calls:
            turns.append(message)
            continue
        role = Role.ASSISTANT if message.role == Role.ASSISTANT else Role.USER
        last = turns[-1] if turns else None
        if last and last.role == role and not last.tool_calls:
            turns[-1] = join_messages(last, message, role)
            continue
        if role != expected:
            turns.append(Message(expected, ""))
            expected, other = other, expected
        turns.append(replace(message, role=role))
        expected, other = other, expected
    return tuple(turns)


def with_ids(messages: Iterable[Message]) -> Iterator[Message]:
    """Give every call and result an id of the form that the model knows; results without one follow the calls."""
    open_ids: list[str] = []
    for message in messages:
        calls = tuple(
            replace(call, id=short_id(call.id or f"{call.name}{call.arguments}")) for call in message.tool_calls
        )
        open_ids += [call.id for call in calls if call.id]
        call_id = message.tool_call_id
        if message.role == Role.TOOL:
            call_id = short_id(call_id) if call_id else next(iter(open_ids), short_id(""))
            open_ids = [each for each in open_ids if each != call_id]
        yield replace(message, tool_calls=calls, tool_call_id=call_id)


def short_id(call_id: str) -> str:
    """Return an id of nine letters or digits; one that is none gives always the same."""
    return call_id if CALL_ID.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]


ROWS = (
    MistralStyler("mistral-nemo"),
    MistralSmall2501Styler("mistral-small-24b-2501"),
    MistralSmall32Styler("mistral-small-3.2"),
)
