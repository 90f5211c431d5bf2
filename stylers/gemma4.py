"""Gemma 4: reasoning in a channel, calls with bare keys and marked strings. Source: google/gemma-4-31B-it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
from stylers.chat import Chat, Message, Role
from stylers.parsing.gemma_calls import GemmaCalls
from stylers.tools import ToolFormat

CALLS = CallFormat(
    before_name="<|tool_call>call:",
    before_arguments="{",
    after_arguments="}<tool_call|>",
    layout=ParameterLayout("", ":", "", ",", values="gemma"),
)


@dataclass(frozen=True)
class Gemma4Styler(Styler):
    """The folder's template is rendered; `enable_thinking` false closes an empty channel in the prompt."""

    stop: ClassVar[tuple[str, ...]] = ("<turn|>", "<eos>", "<|tool_response>")
    think: ClassVar[tuple[str, str] | None] = ("<|channel>thought\n", "<channel|>")
    slots: ClassVar[Mapping[str, str]] = {"image": "<|image|>", "video": "<|video|>"}
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, GemmaCalls("<|tool_call>", "<tool_call|>"))

    def repair(self, chat: Chat) -> Chat:
        """Give every result the name of its function, which the template writes."""
        return replace(chat, messages=tuple(_with_names(chat.messages)))


def _with_names(messages: Iterable[Message]) -> Iterator[Message]:
    names: dict[str | None, str] = {}
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        names.update((None, call.name) for call in message.tool_calls[-1:])  # for results that name no call
        if message.role == Role.TOOL and message.name is None:
            message = replace(message, name=names.get(message.tool_call_id) or names.get(None) or "unknown")
        yield message


ROWS = (Gemma4Styler("gemma-4"),)
