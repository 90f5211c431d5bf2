"""Qwen3-Coder: calls in tags, one for each parameter, with values typed by the tool's schema.

Source: chat_template.jinja of Qwen/Qwen3-Coder-30B-A3B-Instruct, 2025-08-21.
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers import qwen2
from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
from stylers.messages import TemplateDialect
from stylers.parsing.parameter_calls import ParameterCalls
from stylers.tools import ToolFormat

CALLS = CallFormat(
    before_name="<tool_call>\n<function=",
    before_arguments=">\n",
    after_arguments="</function>\n</tool_call>",
    separator="\n",
    layout=ParameterLayout("<parameter=", ">\n", "\n</parameter>\n"),
)
READER = ParameterCalls(
    begin="<tool_call>",
    before_name="<function=",
    after_name=">",
    before_key="<parameter=",
    after_key=">",
    before_value="",
    after_value="</parameter>",
    after_parameters="</function>",
    end="</tool_call>",
    newlines=True,
    optional_begin=True,
    optional_after_value=True,
)


@dataclass(frozen=True)
class Qwen3CoderStyler(Styler):
    """No reasoning; a newline at each end of a value belongs to its tags."""

    stop: ClassVar[tuple[str, ...]] = qwen2.STOP
    dialect: ClassVar[TemplateDialect] = TemplateDialect(arguments="strict")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, READER)


ROWS = (Qwen3CoderStyler("qwen3-coder"),)
