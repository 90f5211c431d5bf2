"""InternLM 2 and 2.5: ChatML; tools as a plugin.

Source: tokenizer_config.json of internlm/internlm2-chat-7b and internlm2_5-7b-chat; the plugin form:
InternLM/InternLM, chat/chat_format.md. A plugin's messages have a name behind their role.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers import chatml
from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role, ToolDefinition
from stylers.chatml import ChatMLStyler
from stylers.parsing.json_calls import TaggedObjects
from stylers.tools import ToolFormat, ToolText, to_json

PLUGIN_SYSTEM = "system name=<|plugin|>"
PLUGIN_RESULT = "environment name=<|plugin|>"
CALLS = CallFormat(
    before_name='<|action_start|><|plugin|>\n{"name": "',
    before_arguments='", "parameters": ',
    after_arguments="}<|action_end|>",
    parallel=False,
)
READER = TaggedObjects("<|action_start|>", "<|action_end|>", then="<|plugin|>")


def definitions(tools: Sequence[ToolDefinition]) -> str:
    """Write the tools as the plugin's system message has them."""
    return to_json([tool.function for tool in tools], indent=4)


@dataclass(frozen=True)
class InternLM2Styler(ChatMLStyler):
    """The prompt begins with the BOS token; there is no default system text."""

    stop: ClassVar[tuple[str, ...]] = (chatml.END, "</s>")
    tool_format: ClassVar[ToolFormat | None] = ToolFormat(
        CALLS,
        READER,
        ToolText(definitions, CALLS, lambda result: result.text, result_role=PLUGIN_RESULT, before_calls=""),
    )

    def build(self, chat: Chat) -> str:
        """Write BOS and the turns."""
        return self.settings.bos_token + super().build(chat)

    def write_tools(self, chat: Chat) -> Chat:
        """Give the tools a system message of their own, behind the request's."""
        own = [message for message in chat.messages[:1] if message.role in (Role.SYSTEM, Role.DEVELOPER)]
        written = super().write_tools(replace(chat, messages=chat.messages[len(own) :]))
        plugin = Message(PLUGIN_SYSTEM, written.messages[0].text)
        return replace(written, messages=(*own, plugin, *written.messages[1:]))


ROWS = (InternLM2Styler("internlm2"), InternLM2Styler("internlm2.5"))
