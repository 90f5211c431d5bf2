"""Gemma 4: reasoning in a channel, calls with bare keys and marked strings. Source: google/gemma-4-31B-it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
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
    slots: ClassVar[Mapping[str, str]] = {"image": "<|image|>"}
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, GemmaCalls("<|tool_call>", "<tool_call|>"))


ROWS = (Gemma4Styler("gemma-4"),)
