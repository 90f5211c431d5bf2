"""The table of what is honoured: complete, and the one that the documentation shows."""

from dataclasses import fields
from pathlib import Path

from engines import GenerationRequest, SamplingParams
from engines.trtllm.support import SUPPORT, WAYS, support_table

PAGE = Path(__file__).parents[3] / "docs" / "tensorrt-llm.md"
NOT_A_CHOICE = {"seq_id", "prompt_token_ids", "sampling", "max_tokens"}


def test_every_field_of_a_request_is_in_the_table() -> None:
    asked = {field.name for kind in (GenerationRequest, SamplingParams) for field in fields(kind)}
    assert set(SUPPORT) == asked - NOT_A_CHOICE
    assert all(set(ways) == set(WAYS) for ways in SUPPORT.values())


def test_the_documentation_shows_the_table() -> None:
    assert support_table() in PAGE.read_text(encoding="utf-8")
