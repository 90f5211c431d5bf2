"""Readers of the test data beside the tests (tests/data/README.md says how it was made)."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
DATE = re.compile(r"-20\d\d-\d\d(-\d\d)?$")


@cache
def template(family: str) -> str:
    with open(DATA / "chat_templates" / f"{family}.jinja", encoding="utf-8", newline="") as file:
        return file.read()


@cache
def golden(family: str) -> list[dict[str, Any]]:
    return _cases("golden_prompts", family)


@cache
def outputs(family: str) -> list[dict[str, Any]]:
    return _cases("output_cases", family)


def _cases(folder: str, family: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / folder / f"{family}.json").read_text("utf-8"))
    return cases


def template_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "chat_templates").glob("*.jinja"))


def golden_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "golden_prompts").glob("*.json"))


def output_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "output_cases").glob("*.json"))


def styler_name(family: str) -> str:
    """The name without the date of an older revision."""
    return DATE.sub("", family)
