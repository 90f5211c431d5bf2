from typing import Any

import pytest

import stylers
from tests.stylers.data import golden, template

CASES = [case for case in golden("smollm2") if "prompt" in case and "image_parts" not in case["case"]]


@pytest.mark.parametrize("source", [template("smollm2"), None], ids=["template", "builder"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_prompt_is_the_golden_one(case: dict[str, Any], source: str | None) -> None:
    kwargs = {key: case["kwargs"].get(key, False) for key in ("add_generation_prompt", "continue_final_message")}
    prompt = stylers.get("smollm2").render(case["request"], chat_template=source, tools_block=False, **kwargs)
    assert prompt == case["prompt"]


def test_the_turn_ends_at_the_end_token() -> None:
    prompt = stylers.get("smollm2").build_prompt(
        stylers.Chat.from_openai({"messages": [{"role": "user", "content": "Hi"}]})
    )
    assert prompt.stop == ("<|im_end|>",)
    assert not prompt.prefilled_think


def test_an_answer_is_content_whatever_it_holds() -> None:
    raw = 'Use <b> & {"name": "x"} <think> freely'
    message = stylers.get("smollm2").parse(raw, engine_finish="length")
    assert (message.content, message.reasoning, message.tool_calls) == (raw, None, ())
    assert message.finish_reason == "length"
