"""The fake TensorRT-LLM and a checkpoint for it."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from types import ModuleType

import pytest

from engines.openvino.gguf_model import GgufModel
from engines.openvino.gguf_tokenizer import build_tokenizer
from engines.trtllm.adopt import adopt_checkpoint
from tests.doubles import CHAT_TEMPLATE
from tests.tiny_gguf import write_tiny_gguf

FAKES = Path(__file__).parent / "fakes"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def fake_trtllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Make the fake package importable for one test, and return its stage."""
    monkeypatch.syspath_prepend(FAKES)
    stage = import_module("tensorrt_llm.stage")
    stage.reset()
    yield stage
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]


def write_checkpoint(folder: Path, tokenizer: Path, **fields: object) -> Path:
    """Write what a Hugging Face checkpoint of a tiny llama has, but for the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    copyfile(tokenizer, folder / "tokenizer.json")
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))
    tokens = vocabulary["model"]["vocab"] | {token["content"]: token["id"] for token in vocabulary["added_tokens"]}
    config = {**CONFIG, "vocab_size": len(tokens), "eos_token_id": tokens["<|im_end|>"], **fields}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [config["eos_token_id"]]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the tokenizer that `tiny_engine` has."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = build_tokenizer(GgufModel.open(write_tiny_gguf(folder / "tiny.gguf")))
    tokenizer.save(str(folder / "tokenizer.json"))
    return write_checkpoint(folder / "tiny-llama", folder / "tokenizer.json")


@pytest.fixture(scope="session")
def trtllm_engine(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine folder of `tiny_checkpoint`."""
    return adopt_checkpoint(tiny_checkpoint, tmp_path_factory.mktemp("trtllm")).path
