"""The fake TensorRT-LLM and a checkpoint for it."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from engines.openvino.gguf_model import GgufModel
from engines.openvino.gguf_tokenizer import build_tokenizer
from engines.trtllm.adopt import Adoption, adopt_checkpoint
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
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}


@contextmanager
def fake_package() -> Iterator[ModuleType]:
    """Make the fake package importable, and give its stage; inside another such block it is the same package."""
    is_outermost = "tensorrt_llm" not in sys.modules
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FAKES)
        stage = import_module("tensorrt_llm.stage")
        stage.reset()
        yield stage
    if is_outermost:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tensorrt_llm", "torch")]:
            del sys.modules[name]


@pytest.fixture
def fake_trtllm() -> Iterator[ModuleType]:
    """The stage of the fake package, which can be imported for the time of one test."""
    with fake_package() as stage:
        yield stage


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


def engine_config(
    vocab_size: int = 300,
    tp_size: int = 1,
    plugins: Mapping[str, Any] = MappingProxyType({}),
    quantization: Mapping[str, Any] = MappingProxyType({}),
    **build: Any,
) -> dict[str, Any]:
    """What trtllm-build writes as config.json of a tiny llama; `build` changes fields of its build_config."""
    plugin_config = {
        "gpt_attention_plugin": "auto",
        "lora_plugin": None,
        "context_fmha": True,
        "paged_kv_cache": True,
        "remove_input_padding": True,
        "tokens_per_block": 32,
        "use_paged_context_fmha": True,
        **plugins,
    }
    return {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "dtype": "float16",
            "vocab_size": vocab_size,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_size": 16,
            "max_position_embeddings": 512,
            "mapping": {"world_size": tp_size, "tp_size": tp_size, "pp_size": 1, "cp_size": 1, "gpus_per_node": 8},
            "quantization": {"quant_algo": None, "kv_cache_quant_algo": None, **quantization},
        },
        "build_config": {
            "max_input_len": 511,
            "max_seq_len": 512,
            "max_batch_size": 8,
            "max_beam_width": 1,
            "max_num_tokens": 64,
            "max_prompt_embedding_table_size": 0,
            "kv_cache_type": "PAGED",
            "gather_context_logits": True,
            "gather_generation_logits": True,
            "max_draft_len": 0,
            "speculative_decoding_mode": 1,
            "use_mrope": False,
            "lora_config": {"lora_dir": [], "max_lora_rank": 64, "lora_target_modules": []},
            "plugin_config": plugin_config,
            **build,
        },
    }


def write_prebuilt(folder: Path, document: dict[str, Any]) -> Path:
    """Write the folder of a prebuilt engine: its config.json and a file per rank."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    for rank in range(document.get("pretrained_config", {}).get("mapping", {}).get("world_size", 1)):
        (folder / f"rank{rank}.engine").write_bytes(b"a serialised engine")
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


def adopt_prebuilt(checkpoint: Path, folder: Path, tp_size: int = 1, **build: Any) -> Path:
    """Write a prebuilt engine of a checkpoint below `folder`, and return the engine folder that describes it."""
    vocab_size = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    engine = write_prebuilt(folder / "prebuilt", engine_config(vocab_size, tp_size, **build))
    target = folder / "described"
    target.mkdir()
    return Adoption.of(engine, tokenizer=checkpoint).write(target, {}).path


@pytest.fixture(scope="session")
def trtllm_prebuilt(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine folder of a prebuilt engine of `tiny_checkpoint`."""
    room = {"max_prompt_embedding_table_size": 8 * 16, "use_mrope": True}  # 16 rows per sequence of a batch
    return adopt_prebuilt(tiny_checkpoint, tmp_path_factory.mktemp("prebuilt"), **room)
