"""The built-in builders against the official templates, over conversations that nobody thought of."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stylers
from stylers import StylerError
from tests.stylers.data import template, template_names

FAMILIES = [name for name in template_names() if name in stylers.names() and stylers.get(name).has_builder]
OWN_FORM = {"chatglm3"}  # with tools the builder writes what the template cannot express

texts = st.text(st.sampled_from("ab \n\té<>&\"'{}🙂"), max_size=8) | st.sampled_from(
    [
        "<think>\nhm\n</think>\n\nso",
        "x</think>y</think>\nz",
        "<tool_response>\n1\n</tool_response>",
        "\n\n two \n",
        "<think>open",
    ]
)
parts = st.lists(texts.map(lambda text: {"type": "text", "text": text}), min_size=1, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(st.sampled_from(["a", "b", "ü"]), values, max_size=2)
calls = st.builds(
    lambda name, value, number: {
        "id": f"call0000{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(value, ensure_ascii=False)},
    },
    st.sampled_from(["look", "go"]),
    arguments,
    st.integers(0, 9),
)
tool = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look … <b>&</b> 'x'\n",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "é"}}},
    },
}


def message(role: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), **fields})


users = message("user", content=texts | parts)
assistants = message("assistant", content=texts) | st.builds(
    lambda content, reasoning, made: {
        "role": "assistant",
        "content": content,
        **({"reasoning_content": reasoning} if reasoning is not None else {}),
        **({"tool_calls": made} if made else {}),
    },
    texts | st.none(),
    texts | st.none(),
    st.lists(calls, max_size=2),
)
results = message("tool", content=texts, tool_call_id=st.just("call00000"))
conversations = st.builds(
    lambda system, rest: [*system, *rest],
    st.lists(message("system", content=texts), max_size=1),
    st.lists(users | assistants | results | message("system", content=texts), min_size=1, max_size=5),
)
switches = st.fixed_dictionaries(
    {},
    optional={
        "enable_thinking": st.booleans(),
        "date_string": st.just("1 Jan 2026"),
        "tools_in_user_message": st.booleans(),
        "add_vision_id": st.booleans(),
    },
)


def outcome(family: str, request: dict[str, Any], source: str | None) -> str | None:
    try:
        return stylers.get(family).render(
            request, chat_template=source, bos_token="<s>", eos_token="</s>", tools_block=False
        )
    except StylerError:
        return None


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(messages=conversations, with_tools=st.booleans(), kwargs=switches, opens=st.booleans())
def test_builder_writes_what_the_official_template_renders(
    family: str, messages: list[dict[str, Any]], with_tools: bool, kwargs: dict[str, Any], opens: bool
) -> None:
    request = {"messages": messages, "chat_template_kwargs": kwargs, "add_generation_prompt": opens}
    if with_tools and family not in OWN_FORM:
        request["tools"] = [tool]
    by_template = outcome(family, request, template(family))
    if by_template is not None:
        assert outcome(family, request, None) == by_template
