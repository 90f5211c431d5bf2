"""That the page about the fake TensorRT-LLM names tests that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS / "fakes" / "README.md"


def test_every_rule_of_the_page_has_its_test() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    files = [*Path(__file__).parent.rglob("test_*.py"), TESTS / "llm_server" / "test_trtllm.py"]
    defined = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    assert len(named) > 30
    assert named <= defined
