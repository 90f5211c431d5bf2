"""The table of what is honoured: complete, and the one that the documentation shows."""

import re
from dataclasses import fields
from pathlib import Path

from engines import GenerationRequest, SamplingParams
from engines.config import TensorRTLLMConfig
from engines.trtllm.prebuilt.settings import CHECKPOINT_ONLY
from engines.trtllm.support import SUPPORT, WAYS, support_table

PAGE = Path(__file__).parents[3] / "docs" / "tensorrt-llm.md"
NOT_A_CHOICE = {"seq_id", "prompt_token_ids", "sampling", "max_tokens"}


def test_every_field_of_a_request_is_in_the_table() -> None:
    asked = {field.name for kind in (GenerationRequest, SamplingParams) for field in fields(kind)}
    assert set(SUPPORT) == asked - NOT_A_CHOICE
    assert all(set(ways) == set(WAYS) for ways in SUPPORT.values())


def test_the_documentation_shows_the_table() -> None:
    assert support_table() in PAGE.read_text(encoding="utf-8")


def test_the_documentation_says_for_which_kind_of_model_each_setting_is() -> None:
    rows = re.findall(
        r"^\| (`.+?) \| .*? \| (checkpoints|engines|both) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    shown = {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    kinds = {field.name: "both" for field in fields(TensorRTLLMConfig)}
    assert shown == kinds | dict.fromkeys(CHECKPOINT_ONLY, "checkpoints") | {"lookahead": "engines"}
