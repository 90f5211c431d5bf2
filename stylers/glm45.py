"""GLM-4.5 and 4.6: reasoning in `<think>` tags, calls with a tag for each key and each value.

Source: chat_template.jinja of zai-org/GLM-4.5.
"""

from dataclasses import dataclass
from typing import ClassVar

from stylers.base import Styler
from stylers.call_format import CallFormat, ParameterLayout
from stylers.messages import TemplateDialect
from stylers.parsing.parameter_calls import ParameterCalls
from stylers.tools import ToolFormat

CALLS = CallFormat(
    before_name="<tool_call>",
    before_arguments="\n",
    after_arguments="</tool_call>",
    separator="\n",
    layout=ParameterLayout("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
)
READER = ParameterCalls(
    begin="<tool_call>",
    before_name="",
    after_name="",
    before_key="<arg_key>",
    after_key="</arg_key>",
    before_value="<arg_value>",
    after_value="</arg_value>",
    after_parameters="",
    end="</tool_call>",
)


@dataclass(frozen=True)
class GLM45Styler(Styler):
    """`enable_thinking` false closes an empty reasoning in the prompt."""

    stop: ClassVar[tuple[str, ...]] = ("<|endoftext|>", "<|user|>", "<|observation|>")
    dialect: ClassVar[TemplateDialect] = TemplateDialect(arguments="strict")
    think: ClassVar[tuple[str, str] | None] = ("<think>", "</think>")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, READER)


ROWS = (GLM45Styler("glm-4.5"), GLM45Styler("glm-4.6"))
