"""Hermes 2 Pro and Hermes 3: ChatML with calls as JSON in `<tool_call>` tags.

Source: tokenizer_config.json of NousResearch/Hermes-2-Pro-Llama-3-8B and Hermes-3-Llama-3.1-8B (templates "tool_use"
and "default"); the tool text for the default template: NousResearch/Hermes-Function-Calling, README.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stylers import chatml
from stylers.base import Styler
from stylers.chat import ToolDefinition
from stylers.messages import TemplateDialect
from stylers.tools import HERMES_CALLS, HERMES_READER, ToolFormat, ToolText, tagged_result, to_json

CALL_SCHEMA = (
    '{"properties": {"name": {"title": "Name", "type": "string"}, "arguments": {"title": "Arguments", "type": '
    '"object"}}, "required": ["name", "arguments"], "title": "FunctionCall", "type": "object"}'
)


def tools_block(tools: Sequence[ToolDefinition]) -> str:
    """Write the system text that introduces the tools."""
    definitions = "\n".join(to_json(tool.source) for tool in tools)
    return (
        "You are a function calling AI model. You are provided with function signatures within <tools></tools> XML "
        "tags. You may call one or more functions to assist with the user query. Don't make assumptions about what "
        f"values to plug into functions. Here are the available tools: <tools> {definitions} </tools>"
        f"Use the following pydantic model json schema for each tool call you will make: {CALL_SCHEMA}\n"
        "For each function call return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags as follows:\n<tool_call>\n{"name": <function-name>, "arguments": <args-dict>}\n</tool_call>'
    )


@dataclass(frozen=True)
class HermesStyler(Styler):
    """The folder's template is rendered; the default one gets the tools in its texts."""

    stop: ClassVar[tuple[str, ...]] = (chatml.END,)
    dialect: ClassVar[TemplateDialect] = TemplateDialect(no_tools="empty")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(
        HERMES_CALLS, HERMES_READER, ToolText(tools_block, HERMES_CALLS, tagged_result, result_role="tool")
    )


ROWS = (
    HermesStyler("hermes"),
    HermesStyler("hermes-2-pro-tool_use", ("hermes-2-pro",)),
    HermesStyler("hermes-3"),
    HermesStyler("hermes-3-tool_use"),
)
