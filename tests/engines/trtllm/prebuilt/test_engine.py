"""What is read of an engine folder's own config.json, and how a folder that is not whole is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.prebuilt.engine import PrebuiltEngine, SpeculativeMode, is_prebuilt_engine
from tests.trtllm_fixtures import engine_config, write_prebuilt


def changed(folder: Path, *path: str, **fields: Any) -> PrebuiltEngine:
    """Write an engine whose config.json has other fields in the section at `path`; None takes a field away."""
    document = engine_config()
    section = document
    for name in path:
        section = section[name]
    section.update(fields)
    for name in [name for name, value in section.items() if name in fields and value is None]:
        del section[name]
    return PrebuiltEngine.read(write_prebuilt(folder, document))


def test_an_engine_says_what_it_was_built_for(tmp_path: Path) -> None:
    engine = PrebuiltEngine.read(write_prebuilt(tmp_path, engine_config()))
    assert (engine.version, engine.architecture, engine.dtype) == ("1.2.1", "LlamaForCausalLM", "float16")
    assert (engine.quantisation, engine.kv_quantisation) == (None, None)
    assert (engine.num_layers, engine.num_heads, engine.num_kv_heads, engine.head_size) == (2, 4, 2, 16)
    assert (engine.max_sequence_length, engine.max_input_length, engine.tokens_per_block) == (512, 511, 32)
    assert (engine.world_size, [file.name for file in engine.rank_files]) == (1, ["rank0.engine"])
    assert engine.speculative_mode is SpeculativeMode.NONE
    assert engine.paged_kv_cache
    assert engine.use_paged_context_fmha
    assert not engine.lora_plugin


def test_what_old_builds_left_out_has_the_runtime_s_own_defaults(tmp_path: Path) -> None:
    engine = changed(tmp_path, "pretrained_config", num_key_value_heads=None, head_size=None)
    assert (engine.num_kv_heads, engine.head_size) == (4, 16)


def test_all_ranks_of_tensor_and_pipeline_parallel_engines_are_counted(tmp_path: Path) -> None:
    mapping = {"world_size": 4, "tp_size": 2, "pp_size": 2, "cp_size": 1, "gpus_per_node": 4}
    engine = changed(tmp_path, "pretrained_config", mapping=mapping)
    assert (engine.world_size, len(engine.rank_files), engine.gpus_per_node) == (4, 4, 4)


@pytest.mark.parametrize(
    ("flag", "mode"),
    [(1, "none"), (2, "draft_tokens_external"), (4, "medusa"), (8, "lookahead_decoding"), (32, "eagle"), (0, "none")],
)
def test_the_mode_of_speculation_is_a_bit(tmp_path: Path, flag: int, mode: str) -> None:
    assert changed(tmp_path, "build_config", speculative_decoding_mode=flag).speculative_mode == mode


def test_lora_modules_and_their_rank_are_read(tmp_path: Path) -> None:
    document = engine_config()
    document["build_config"]["plugin_config"]["lora_plugin"] = "auto"
    document["build_config"]["lora_config"] = {"max_lora_rank": 16, "lora_target_modules": ["attn_q", "attn_v"]}
    engine = PrebuiltEngine.read(write_prebuilt(tmp_path, document))
    assert engine.lora_plugin
    assert (engine.max_lora_rank, engine.lora_target_modules) == (16, ("attn_q", "attn_v"))


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ((), "version", "no text version"),
        ((), "build_config", "no object build_config"),
        (("pretrained_config",), "vocab_size", r"no number pretrained_config\.vocab_size"),
        (("pretrained_config", "mapping"), "tp_size", r"no number pretrained_config\.mapping\.tp_size"),
        (("build_config",), "max_seq_len", r"no number build_config\.max_seq_len"),
        (("build_config", "plugin_config"), "tokens_per_block", r"build_config\.plugin_config\.tokens_per_block"),
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, path: tuple[str, ...], name: str, message: str) -> None:
    with pytest.raises(TensorRTLLMError, match=message):
        changed(tmp_path, *path, **{name: None})


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (("pretrained_config",), "dtype", "x"),
        (("pretrained_config",), "num_hidden_layers", 0),
        (("pretrained_config",), "num_attention_heads", 0),
        (("pretrained_config",), "num_key_value_heads", -1),
        (("pretrained_config",), "vocab_size", True),
        (("pretrained_config", "mapping"), "tp_size", 0),
        (("build_config",), "max_batch_size", 0),
        (("build_config",), "max_draft_len", -1),
        (("build_config", "lora_config"), "lora_target_modules", 1.5),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    tmp_path: Path, path: tuple[str, ...], name: str, value: object
) -> None:
    with pytest.raises(TensorRTLLMError, match=rf"{'.'.join(path)}\.{name}"):
        changed(tmp_path, *path, **{name: value})


def test_a_mode_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TensorRTLLMError, match=r"unknown build_config\.speculative_decoding_mode 64"):
        changed(tmp_path, "build_config", speculative_decoding_mode=64)


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    document = engine_config(tp_size=2)
    folder = write_prebuilt(tmp_path, document)
    (folder / "rank1.engine").unlink()
    with pytest.raises(TensorRTLLMError, match=r"lacks rank1\.engine of an engine for 2 GPUs"):
        PrebuiltEngine.read(folder)


@pytest.mark.parametrize("content", [None, "{", "[]", "[" * 100_000])
def test_a_folder_without_a_readable_config_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(TensorRTLLMError, match=r"config\.json (is missing|cannot be read|is not a JSON object)"):
        PrebuiltEngine.read(tmp_path)


def test_engines_and_checkpoints_are_told_apart(tmp_path: Path, tiny_checkpoint: Path) -> None:
    assert is_prebuilt_engine(write_prebuilt(tmp_path / "engine", engine_config()))
    assert not is_prebuilt_engine(tiny_checkpoint)
    assert not is_prebuilt_engine(tmp_path)
    assert json.loads((tmp_path / "engine" / "config.json").read_text())["version"] == "1.2.1"
