"""What is refused before or while TensorRT-LLM starts, each time in one line with the fix."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engines import EngineConfig, EngineFolder
from engines.config import TensorRTLLMConfig
from engines.trtllm.adopt import adopt_checkpoint
from engines.trtllm.checkpoint import Checkpoint
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.executor import TRTLLMExecutor
from engines.trtllm.ranks import Launch
from tests.trtllm_fixtures import write_checkpoint


def load(folder: Path, config: EngineConfig | None = None, **settings: Any) -> None:
    config = config or EngineConfig(trtllm=TensorRTLLMConfig(**settings))
    TRTLLMExecutor.load(EngineFolder.load(folder), config)


def test_without_the_package_the_refusal_names_it(trtllm_engine: Path) -> None:
    with pytest.raises(TensorRTLLMError, match=r"install tensorrt-llm>=1\.2,<1\.3 on a GPU machine"):
        load(trtllm_engine)


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0rc3", "1.3.0", "1.20.0", "0.21.0"])
def test_another_version_is_refused(
    fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch, trtllm_engine: Path, version: str
) -> None:
    monkeypatch.setattr("tensorrt_llm.__version__", version)
    with pytest.raises(TensorRTLLMError, match=f"TensorRT-LLM {version} is installed; this server needs"):
        load(trtllm_engine)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel_size": 3}, "does not divide the 4 attention heads of tiny-llama"),
        ({"tensor_parallel_size": 2, "gpus_per_node": 16}, "Only 8 GPUs are available"),
    ],
)
def test_settings_that_do_not_fit_model_or_machine(
    fake_trtllm: ModuleType, trtllm_engine: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TensorRTLLMError, match=message):
        load(trtllm_engine, **settings)


@pytest.mark.parametrize("name", ["precision", "kv_cache_precision", "num_threads"])
def test_settings_of_the_cpu_engine_are_refused_by_name(trtllm_engine: Path, name: str) -> None:
    value: Any = {"precision": "bf16", "kv_cache_precision": "u8", "num_threads": 4}[name]
    with pytest.raises(TensorRTLLMError, match=f"{name} is a setting of the CPU engine"):
        load(trtllm_engine, EngineConfig(**{name: value}))


def test_a_build_without_a_setting_refuses_it(
    fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch, trtllm_engine: Path
) -> None:
    from tensorrt_llm.llmapi.llm_args import TorchLlmArgs

    fields = {name: field for name, field in TorchLlmArgs.model_fields.items() if name != "sampler_type"}
    monkeypatch.setattr("tensorrt_llm.llmapi.llm_args.TorchLlmArgs", type("Args", (), {"model_fields": fields}))
    with pytest.raises(TensorRTLLMError, match=r"TensorRT-LLM 1\.2\.1 has no setting sampler_type"):
        load(trtllm_engine)


def test_a_checkpoint_is_described_where_it_lies(tiny_checkpoint: Path, trtllm_engine: Path) -> None:
    folder = EngineFolder.load(trtllm_engine)
    description = folder.description
    assert (description.engine, description.architecture) == ("trtllm", "LlamaForCausalLM")
    assert (description.precision, description.max_sequence_length) == ("bfloat16", 512)
    assert description.eos_text == "<|im_end|>"
    assert folder.chat_template is not None
    location = {"kind": "checkpoint", "path": str(tiny_checkpoint)}
    assert json.loads((trtllm_engine / "trtllm.json").read_text()) == location


def test_a_checkpoint_that_is_gone_is_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", tiny_checkpoint / "tokenizer.json")
    (tmp_path / "engine").mkdir()
    adopt_checkpoint(checkpoint, tmp_path / "engine")
    checkpoint.rename(tmp_path / "moved")
    with pytest.raises(TensorRTLLMError, match="which is gone"):
        load(tmp_path / "engine")


def test_folders_that_are_no_checkpoint_are_refused_with_the_fix(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(TensorRTLLMError, match=r"config\.json is missing"):
        adopt_checkpoint(tmp_path, tmp_path)
    engine = write_checkpoint(
        tmp_path / "engine", tiny_checkpoint / "tokenizer.json", pretrained_config={}, build_config={}
    )
    with pytest.raises(TensorRTLLMError, match="prebuilt TensorRT engine"):
        adopt_checkpoint(engine, tmp_path)
    bare = write_checkpoint(tmp_path / "bare", tiny_checkpoint / "tokenizer.json")
    (bare / "tokenizer.json").unlink()
    with pytest.raises(TensorRTLLMError, match="save_pretrained"):
        adopt_checkpoint(bare, tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("torch_dtype", ["bfloat16"], "unknown torch_dtype"),
        ("architectures", {"LlamaForCausalLM": 1}, "names no architecture"),
        ("vocab_size", True, "has no number vocab_size"),
        ("max_position_embeddings", 0, "has no number max_position_embeddings"),
    ],
)
def test_a_checkpoint_with_a_value_that_cannot_be_is_refused_by_name(
    tiny_checkpoint: Path, tmp_path: Path, field: str, value: object, message: str
) -> None:
    write_checkpoint(tmp_path, tiny_checkpoint / "tokenizer.json", **{field: value})
    with pytest.raises(TensorRTLLMError, match=message):
        adopt_checkpoint(tmp_path, tmp_path)


def test_the_kv_cache_is_counted_on_paper(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shape = Checkpoint(tiny_checkpoint).shape
    assert shape.kv_bytes_per_token("auto", 1, 1) == 2 * 2 * 2 * 16 * 2  # K and V, layers, heads, head size, bytes
    assert shape.kv_bytes_per_token("fp8", 2, 2) == 2 * 1 * 1 * 16 * 1
    latent = write_checkpoint(tmp_path / "latent", tiny_checkpoint / "tokenizer.json", kv_lora_rank=8)
    with pytest.raises(TensorRTLLMError, match="set kv_cache_fraction instead"):
        _ = Checkpoint(latent).shape


@pytest.mark.parametrize(
    ("environ", "worker"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_RANK": "0"}, False),
        ({"OMPI_COMM_WORLD_RANK": "1"}, True),
        ({"SLURM_PROCID": "3"}, True),
        ({"PMI_RANK": "2"}, True),
        ({"TLLM_SPAWN_PROXY_PROCESS": "1", "SLURM_PROCID": "3"}, False),
    ],
)
def test_all_ranks_but_the_first_are_workers(environ: dict[str, str], worker: bool) -> None:
    assert Launch.of(environ).is_worker is worker
