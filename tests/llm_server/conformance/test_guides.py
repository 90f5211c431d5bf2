"""Answers that follow a constraint, under every name that the API has for one."""

import json
import re

import pytest

from tests.llm_server.conformance.client import Client, Json
from tests.llm_server.serving import text_of

SCHEMA: Json = {
    "type": "object",
    "properties": {"sky": {"enum": ["rain", "naïve 🦜"]}, "size": {"enum": [1, 22]}},
    "required": ["sky", "size"],
    "additionalProperties": False,
}
CHOICES = ["north", "south west"]
PATTERN = "[0-9]{3}-[a-c]x"
LARK = 'start: ("ab" | "cd") "."'
GBNF = 'root ::= "yes" | "no"'
WAYS: dict[str, tuple[Json, str]] = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, r"\{.*\}"),
    "guided_json": ({"guided_json": SCHEMA}, r"\{.*\}"),
    "guided_json as text": ({"guided_json": json.dumps(SCHEMA)}, r"\{.*\}"),
    "structured json": ({"structured_outputs": {"json": SCHEMA}}, r"\{.*\}"),
    "guided_regex": ({"guided_regex": PATTERN}, PATTERN),
    "structured regex": ({"structured_outputs": {"regex": PATTERN}}, PATTERN),
    "guided_choice": ({"guided_choice": CHOICES}, "|".join(CHOICES)),
    "structured choice": ({"structured_outputs": {"choice": CHOICES}}, "|".join(CHOICES)),
    "guided_grammar in Lark": ({"guided_grammar": LARK}, r"(ab|cd)\."),
    "guided_grammar in GBNF": ({"guided_grammar": GBNF}, "yes|no"),
    "structured grammar": ({"structured_outputs": {"grammar": GBNF}}, "yes|no"),
}


@pytest.mark.parametrize("name", WAYS)
def test_an_answer_follows_its_guide_whole_and_streamed(server: Client, name: str) -> None:
    fields, pattern = WAYS[name]
    answer = server.ask(**fields, max_tokens=100)
    text = answer["choices"][0]["message"]["content"]
    assert re.fullmatch(pattern, text, re.DOTALL), text
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert text_of(server.stream(**fields, max_tokens=100)) == text
    if pattern.startswith(r"\{"):
        parsed = json.loads(text)
        assert parsed["sky"] in ("rain", "naïve 🦜")
        assert parsed["size"] in (1, 22)


ANY_OBJECT: list[Json] = [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}]


@pytest.mark.parametrize("fields", ANY_OBJECT, ids=str)
def test_a_json_object_can_be_asked_for(server: Client, fields: Json) -> None:
    closes: Json = {"logit_bias": {str(server.token_id("}")): 100}}
    assert json.loads(server.text(**fields, **closes, max_tokens=40)) == {}


def test_every_choice_of_an_answer_follows_the_guide(server: Client) -> None:
    answer = server.ask(guided_regex=PATTERN, n=3, temperature=2.0)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert all(re.fullmatch(PATTERN, text) for text in texts)
    assert len(set(texts)) > 1


def test_a_guide_that_is_cut_short_ends_with_length(server: Client) -> None:
    choice = server.ask(guided_regex="[0-9]{50}", max_tokens=10)["choices"][0]
    assert (len(choice["message"]["content"]), choice["finish_reason"]) == (10, "length")


def test_text_is_no_constraint(server: Client) -> None:
    assert server.text(response_format={"type": "text"}) == server.text()


BAD_GUIDES: Json = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such"}}},
    "guided_json": "{ not json",
    "guided_regex": "[a-z]+(",
    "guided_grammar": "start: nowhere",
    "structured_outputs": {"regex": "("},
}


@pytest.mark.parametrize("param", BAD_GUIDES)
def test_a_guide_that_does_not_compile_is_refused_by_its_name(server: Client, param: str) -> None:
    fields: Json = {param: BAD_GUIDES[param]}
    error = server.refusal(**fields)
    assert (error["code"], error["param"]) == ("invalid_guide", param)
    assert server.refusal(**fields, stream=True) == error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "response_format"),
    ],
    ids=str,
)
def test_a_guide_of_a_wrong_form_is_refused(server: Client, fields: Json, param: str) -> None:
    assert server.refusal(**fields)["param"] == param
