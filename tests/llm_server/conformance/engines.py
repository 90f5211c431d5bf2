"""The engines behind the server, as the suite knows them: a line in ENGINES is all that one needs to join.

Each serves a tiny random model with the byte-level vocabulary of tests/tiny_vocabulary.py and a context of 512 tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engines.config import EngineConfig, TensorRTLLMConfig
from engines.progress import silent
from llm_server.config import ModelConfig
from llm_server.loading import load_model
from tests.llm_server.conformance.client import MODEL, Client
from tests.llm_server.sockets import PATIENCE_S, serving_models
from tests.trtllm_fixtures import fake_package

CONTEXT_LENGTH = 512
MAX_BATCH_SIZE = 4
MAX_WAITING = 4
SIZES: Mapping[str, Any] = {
    "kv_cache_gib": 0.01,
    "max_batch_size": MAX_BATCH_SIZE,
    "max_waiting": MAX_WAITING,
    "max_num_tokens": 64,
}
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DRAWS_OF_TORCH = ("seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


@dataclass(frozen=True, slots=True)
class Engine:
    """How to start an engine. `refuses`: fields of the API that it cannot honour, each of which it must name."""

    kind: str
    folder: str
    """The fixture with the model's folder."""
    refuses: frozenset[str] = frozenset()
    settings: Mapping[str, Any] = field(default_factory=dict)


def _trtllm(**settings: Any) -> Mapping[str, Any]:
    # without it logprobs are refused
    return {"trtllm": TensorRTLLMConfig(gather_generation_logits=True, **settings)}


def _checkpoint(**settings: Any) -> Mapping[str, Any]:
    # with it bad words of several tokens are refused
    return _trtllm(disable_overlap_scheduler=True, **settings)


ENGINES: Mapping[str, Engine] = {
    "openvino": Engine("openvino", "tiny_engine"),
    "trtllm": Engine("trtllm", "tiny_checkpoint", settings=_checkpoint()),
    "trtllm-engine": Engine("trtllm", "trtllm_prebuilt", settings=_trtllm()),
    "trtllm-torch": Engine("trtllm", "tiny_checkpoint", frozenset(DRAWS_OF_TORCH), _checkpoint(sampler="torch")),
}
Serve = Callable[..., Any]
"""Starts a server of its own for a test, with other settings of the executor: a context manager of Client."""


@contextmanager
def serving(name: str, request: pytest.FixtureRequest, home: Path, **settings: Any) -> Iterator[Client]:
    """Serve the tiny model with an engine on a free port."""
    engine = ENGINES[name]
    template = home / "template.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    config = ModelConfig(
        str(request.getfixturevalue(engine.folder)),
        served_model_name=MODEL,
        styler="hermes-3",
        chat_template=template,
        engine=engine.kind,  # type: ignore[arg-type]  # of the table above
        executor=EngineConfig(**{**SIZES, **engine.settings, **settings}),
    )
    with fake_package(), ThreadPoolExecutor(1) as pool:
        model = load_model(config, home, pool, silent)
        with (
            serving_models(*model.with_adapters(), drain_timeout_s=PATIENCE_S) as address,
            Client.connected(address, model, engine.refuses) as client,
        ):
            yield client
