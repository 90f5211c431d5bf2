"""Tool choice: what of it becomes a guide, so that the model cannot but call."""

import json
from dataclasses import asdict

from engines.contract import Guide, GuideKind
from llm_server.errors import InvalidBodyError, UnsupportedParameterError
from llm_server.protocol.chat import ChatCompletionRequest
from llm_server.registry import ServedModel
from stylers.chat import Chat
from stylers.prompt import Prompt

FORCED = frozenset(("required", "function"))


def refuse_unsupported_tools(body: ChatCompletionRequest, chat: Chat, model: ServedModel) -> None:
    """Name what the model's family cannot do, instead of answering as if it had not been asked for."""
    if not chat.tools:
        return
    if model.styler.call_format is None:
        raise UnsupportedParameterError(
            f"the model {model.name} has no tool calls of its own; serve it with --generic-tools to give it some",
            "tools",
        )
    if chat.tool_choice.mode in FORCED and body.guide() is not None:
        raise InvalidBodyError("a forced tool call cannot be constrained by another format", "tool_choice")


def call_guide(body: ChatCompletionRequest, chat: Chat, prompt: Prompt, model: ServedModel) -> Guide | None:
    """Return the guide that forces a call, or None where the model may choose.

    A prompt that has opened the reasoning lets it end first; behind it only calls can come.
    """
    styler = model.styler
    if not chat.tools or chat.tool_choice.mode not in FORCED or styler.call_format is None:
        return None
    named = chat.tool_choice.name
    source = {
        "format": asdict(styler.call_format),
        "tools": [
            {"name": tool.name, "parameters": tool.parameters} for tool in chat.tools if named in (None, tool.name)
        ],
        "max_calls": 1 if named or not styler.call_format.parallel else max_calls(body),
        "preamble": styler.think[1] if styler.think and prompt.prefilled_think else "",
    }
    return Guide(GuideKind.CALL_FORMAT, json.dumps(source))


def max_calls(body: ChatCompletionRequest) -> int | None:
    """How many calls one answer may make; None for any number."""
    return 1 if body.parallel_tool_calls is False else None
