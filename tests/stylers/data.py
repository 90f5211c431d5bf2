"""Readers of the test data beside the tests (tests/data/README.md says how it was made)."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"


def template(family: str) -> str:
    with open(DATA / "chat_templates" / f"{family}.jinja", encoding="utf-8", newline="") as file:
        return file.read()


def golden(family: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / "golden_prompts" / f"{family}.json").read_text("utf-8"))
    return cases


def template_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "chat_templates").glob("*.jinja"))
