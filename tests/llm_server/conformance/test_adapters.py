"""LoRA adapters as models of their own names, over the engine that takes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.config import TensorRTLLMConfig
from tests.llm_server.conformance.client import MODEL, Client
from tests.llm_server.conformance.engines import serving
from tests.llm_server.serving import text_of
from tests.lora_adapters import write_adapter

NAMES = (MODEL, "sql", "poems")


@pytest.fixture
def adapted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A server of the tiny model and two adapters."""
    folders = {name: write_adapter(tmp_path / name, seed=seed) for seed, name in enumerate(NAMES[1:])}
    settings = TensorRTLLMConfig(adapters=folders, cuda_graphs=False)
    with serving("trtllm", request, tmp_path, trtllm=settings) as client:
        yield client


def test_each_adapter_answers_under_its_own_name(adapted: Client) -> None:
    answers = {name: adapted.text(model=name) for name in NAMES}
    assert len(set(answers.values())) == 3
    assert {name: text_of(adapted.stream(model=name)) for name in NAMES} == answers
    assert adapted.ask(model="sql")["model"] == "sql"
    assert "this server has tiny, sql, poems" in adapted.refusal(status=404, model="prose")["message"]


def test_adapters_are_listed_with_their_base(adapted: Client) -> None:
    cards = adapted.http.get("/v1/models").json()["data"]
    assert [(card["id"], card["root"], card["parent"]) for card in cards] == [
        (MODEL, MODEL, None),
        ("sql", MODEL, MODEL),
        ("poems", MODEL, MODEL),
    ]


def test_adapters_share_no_prefixes(adapted: Client) -> None:
    text = "Log of the pilot boat. " * 8
    usages = [adapted.ask(text, model=name)["usage"] for name in (*NAMES, "sql")]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages[:3]] == [0, 0, 0]
    assert usages[3]["prompt_tokens_details"]["cached_tokens"] > 0
