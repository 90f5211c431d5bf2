"""What an official template accepts comes out as transformers renders it: putting right changes nothing else."""

import copy
import datetime
import json
from itertools import product
from typing import Any

import pytest
import transformers.utils.chat_template_utils as reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stylers
from stylers import StylerError
from tests.stylers.data import styler_name, template, template_names
from tests.stylers.test_builders import conversations, switches, tool

NOW = datetime.datetime(2025, 7, 15, 10, 30)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
Messages = list[dict[str, Any]]


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "FrozenClock":
        return cls(2025, 7, 15, 10, 30)


def prepared(messages: Messages, *, arguments_as_text: bool, null_as_empty: bool, joined: bool) -> Messages:
    """What any server has to do to OpenAI messages before it can render them."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls") or ():
            if not arguments_as_text:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if null_as_empty and message["content"] is None:
            message["content"] = ""
        if joined and isinstance(message["content"], list):
            message["content"] = "\n".join(part["text"] for part in message["content"])
    return messages


def by_transformers(source: str, messages: Messages, variables: dict[str, Any]) -> set[str]:
    found = set()
    for text, null, joined in product((False, True), repeat=3):
        ready = prepared(messages, arguments_as_text=text, null_as_empty=null, joined=joined)
        try:
            rendered: Any = reference.render_jinja_template([ready], chat_template=source, **TOKENS, **variables)
        except Exception:  # what a template raises is its own affair
            continue
        found.add(rendered[0][0])
    return found


@pytest.mark.parametrize("family", template_names())
def test_nothing_that_a_template_accepts_is_changed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "datetime", FrozenClock)
    source, styler = template(family), stylers.get(styler_name(family))

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(messages=conversations, with_tools=st.booleans(), opens=st.booleans(), kwargs=switches)
    def check(messages: Messages, with_tools: bool, opens: bool, kwargs: dict[str, Any]) -> None:
        tools = [tool] if with_tools else None
        expected = by_transformers(source, messages, {"tools": tools, "add_generation_prompt": opens, **kwargs})
        request = {"messages": messages, "tools": tools, "add_generation_prompt": opens}
        try:
            prompt = styler.render(
                {**request, "chat_template_kwargs": kwargs}, chat_template=source, now=NOW, tools_block=False, **TOKENS
            )
        except StylerError:
            prompt = ""
        assert prompt in expected or not expected

    check()
