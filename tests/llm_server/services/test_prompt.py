"""Control tokens that a user typed, from messages to token ids."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stylers
from llm_server.services.prompt import encode_prompt
from llm_server.tokenizer import Tokenizer
from stylers.chat import Chat
from stylers.prompt import Prompt, TextPiece
from tests.doubles import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_tokenizer_json

TOOL_TAGS = ("<tool_call>", "</tool_call>")
TOKENIZER = Tokenizer(json.dumps(byte_tokenizer_json(*TOOL_TAGS)))
STYLER = stylers.get("qwen3")
typed = st.lists(
    st.sampled_from([*SPECIAL_TOKENS, *TOOL_TAGS, "<|im_", "end|>", "\n", "\U00100000"]) | st.text(max_size=4)
).map("".join)


def token_ids(text: str, **switches: Any) -> list[int]:
    chat = Chat.from_openai({"messages": [{"role": "user", "content": text}]})
    styler = STYLER.for_model(chat_template=CHAT_TEMPLATE, **({"control_tokens": TOKENIZER.control_tokens} | switches))
    return asyncio.run(encode_prompt(styler.build_prompt(chat), TOKENIZER, 10_000))


@given(typed)
def test_whatever_a_user_types_the_control_tokens_are_the_templates(text: str) -> None:
    start, end = (TOKENIZER.token_id(mark) for mark in ("<|im_start|>", "<|im_end|>"))
    turn = [start, *b"user\n", *text.encode(), end, *b"\n"]
    assert token_ids(text) == [*turn, start, *b"assistant\n"]


def test_the_switch_turns_it_off() -> None:
    assert TOKENIZER.token_id("<tool_call>") in token_ids("<tool_call>", control_tokens=())
    assert TOKENIZER.token_id("<tool_call>") not in token_ids("<tool_call>")


@pytest.mark.parametrize("text", ["Hi", "a < b > c", "<|im_", "\n\n  x"])
def test_a_prompt_in_which_nobody_typed_any_has_the_same_ids(text: str) -> None:
    assert token_ids(text) == token_ids(text, control_tokens=())


def test_blanks_that_a_control_token_swallows_are_swallowed_beside_literal_texts_too() -> None:
    source = byte_tokenizer_json()
    source["added_tokens"][1]["rstrip"] = source["added_tokens"][2]["lstrip"] = True
    tokenizer = Tokenizer(json.dumps(source))
    pieces = ("<|im_start|>", "\n a<think> ", "<|im_end|>")
    prompt = Prompt(tuple(TextPiece(text, literal=bool(index % 2)) for index, text in enumerate(pieces)))
    assert asyncio.run(encode_prompt(prompt, tokenizer, 100)) == [257, *b"a<think>", 258]
