import datetime
from typing import Any

import pytest
import transformers.utils.chat_template_utils as reference

from stylers import StylerError
from stylers.template import load_template
from tests.stylers.data import template, template_names

NOW = datetime.datetime(2025, 7, 15, 10, 30)
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add <b>two</b> numbers … 'a' & \"b\".",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number", "description": "first"}, "b": {"type": ["number", "null"]}},
            "required": ["a"],
        },
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [None, "é<>"]}}}
CHATS: dict[str, list[dict[str, Any]]] = {
    "question": [{"role": "user", "content": " Hi … <there>\n"}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "<think>\neasy\n</think>\n\n2"},
        {"role": "user", "content": "And 2+2?"},
    ],
    "call": [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "add", "tool_call_id": "abcdefghi", "content": "3"},
    ],
}


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "FrozenClock":
        return cls(2025, 7, 15, 10, 30)


@pytest.fixture(autouse=True)
def frozen_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "datetime", FrozenClock)


def by_transformers(source: str, variables: dict[str, Any]) -> str | None:
    try:
        rendered: Any = reference.render_jinja_template(
            [variables["messages"]],
            chat_template=source,
            **{key: value for key, value in variables.items() if key != "messages"},
        )
    except Exception:
        return None
    return str(rendered[0][0])


def by_us(source: str, variables: dict[str, Any]) -> str | None:
    try:
        return load_template(source).render({"documents": None, **variables}, NOW)
    except StylerError:
        return None


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("family", template_names())
def test_a_template_renders_as_transformers_renders_it(family: str, chat: str, with_tools: bool) -> None:
    variables = {
        "messages": CHATS[chat],
        "tools": [TOOL] if with_tools else None,
        "add_generation_prompt": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    assert by_us(template(family), variables) == by_transformers(template(family), variables)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(8) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{%endif%}{{ i }}{% endfor %}",
        "a{% generation %}b{{ messages[0].content }}{% endgeneration %}c",
        "{{ tools | tojson(indent=2) }}{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}",
        "{{ messages | tojson(ensure_ascii=true) }}",
        "  {% if true %}\n    x\n  {% endif %}\n{{ dict(a=1) }}",
        "{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}",
        "{{ strftime_now('%d %B %Y') }}",
    ],
)
def test_what_templates_may_use_works_as_in_transformers(source: str) -> None:
    variables = {"messages": CHATS["question"], "tools": [TOOL]}
    expected = by_transformers(source, variables)
    assert expected is not None
    assert by_us(source, variables) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__subclasses__() }}x",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(__init__=1) }}",
        "{{ '%s' | format(messages.__class__.__base__.__subclasses__()) }}",
        "{{ (messages | attr('__class__')).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ messages | map(attribute='__class__.__mro__') | list }}{{ missing.x }}",
        "{{ lipsum.__globals__['os'].popen('true').read() }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{{ 1 // 0 }}",
        "{{ missing.key }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include 'secrets.txt' %}",
        "{% for x in %}",
        "{{ messages | nosuchfilter }}",
    ],
)
def test_a_template_that_fails_or_escapes_is_a_styler_error(source: str) -> None:
    with pytest.raises(StylerError):
        load_template(source).render({"messages": [{"role": "user", "content": "hi"}]})


def test_a_refusal_keeps_the_words_of_the_template() -> None:
    with pytest.raises(StylerError, match="roles must alternate"):
        load_template("{{ raise_exception('roles must alternate') }}").render({})


def test_output_is_bounded() -> None:
    source = "{% for i in range(90000) %}{% for j in range(90000) %}" + "x" * 1000 + "{% endfor %}{% endfor %}"
    with pytest.raises(StylerError, match="prints more than"):
        load_template(source).render({})


def test_a_template_is_compiled_once() -> None:
    assert load_template("{{ 1 }}") is load_template("{{ 1 }}")
