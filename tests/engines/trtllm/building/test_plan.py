"""Options become the vendor's arguments, or are refused where recipe and checkpoint cannot have them."""

from pathlib import Path
from typing import Any

import pytest

from engines.build_options import BuildMachine, EngineOptions, Lookahead, LoraOptions
from engines.building import BuildError
from engines.trtllm.building.builder import describe_build
from engines.trtllm.building.memory import GIB, count_memory
from engines.trtllm.building.plan import Command, EnginePlan, Folders
from tests.engines.trtllm.building.checkpoints import write_safetensors, write_weights
from tests.engines.trtllm.building.families import FAMILIES, LLAMA

FOLDERS = Folders(Path("/examples"), Path("/converted"), Path("/engine"))


def commands(model: Path, workers: int = 1, **options: Any) -> tuple[str, str]:
    plan = EnginePlan.make(model, EngineOptions(**options))
    convert, build = plan.commands(FOLDERS, python="python3", build="trtllm-build", workers=workers)
    return " ".join(convert.arguments), " ".join(build.arguments)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_weights(tmp_path / "llama", LLAMA.config)


def test_a_plain_engine(llama: Path) -> None:
    assert commands(llama, tensor_parallel_size=2, workers=2) == (
        f"/examples/models/core/llama/convert_checkpoint.py --model_dir {llama} --output_dir /converted"
        " --dtype bfloat16 --tp_size 2 --pp_size 1 --workers 2",
        "--checkpoint_dir /converted --output_dir /engine --max_batch_size 256 --max_num_tokens 8192"
        " --max_seq_len 8192 --max_input_len 8191 --max_beam_width 1 --kv_cache_type paged"
        " --remove_input_padding enable --use_paged_context_fmha enable --gemm_plugin auto --workers 2",
    )


def test_fp8_is_calibrated_and_brings_its_kv_cache_along(llama: Path) -> None:
    convert, _ = commands(llama, quantization="fp8", calibration_dataset="/data/pages")
    assert convert == (
        f"/examples/quantization/quantize.py --model_dir {llama} --output_dir /converted --dtype bfloat16 --qformat fp8"
        " --tp_size 1 --pp_size 1 --calib_size 512 --kv_cache_dtype fp8 --calib_dataset /data/pages"
    )


def test_a_kv_cache_in_int8_is_calibrated_with_any_weights(llama: Path) -> None:
    convert, _ = commands(llama, quantization="int8_wo", kv_cache_dtype="int8")
    assert "quantize.py" in convert
    assert "--qformat int8_wo" in convert
    assert "--kv_cache_dtype int8" in convert


def test_float32_becomes_float16(tmp_path: Path) -> None:
    model = write_weights(tmp_path / "old", LLAMA.config, torch_dtype="float32")
    assert "--dtype float16" in commands(model)[0]
    assert "--dtype bfloat16" in commands(model, dtype="bfloat16")[0]


@pytest.mark.parametrize(
    ("sizes", "max_draft_len"),
    [((7, 7, 7), 83), ((4, 3, 4), 15), ((1, 1, 0), 0)],  # the first is the vendor's own example
)
def test_lookahead_needs_its_drafts_and_leaves_the_prompts_logits(
    sizes: tuple[int, int, int], max_draft_len: int, llama: Path
) -> None:
    _, build = commands(llama, lookahead=Lookahead(*sizes), gather_logits=True)
    assert f"--speculative_decoding_mode lookahead_decoding --max_draft_len {max_draft_len} " in build
    assert "--gather_generation_logits" in build
    assert "--gather_all_token_logits" in commands(llama, gather_logits=True)[1]


def test_lora_needs_its_plugin(llama: Path) -> None:
    lora = LoraOptions(folders=("/a", "/b"), target_modules=("attn_q", "attn_v"), max_rank=8)
    assert (
        "--lora_plugin auto --lora_dir /a /b --lora_target_modules attn_q attn_v --max_lora_rank 8"
        in commands(llama, lora=lora)[1]
    )


def test_images_get_a_table_for_the_whole_batch(tmp_path: Path) -> None:
    model = write_weights(tmp_path / "vl", FAMILIES["qwen2-vl"].config)
    assert "--max_multimodal_len 1296 " in commands(model, max_batch_size=4)[1]  # 4 x 324, as in the vendor's page
    assert "--max_multimodal_len 5000 " in commands(model, max_multimodal_len=5000)[1]
    assert "--max_multimodal_len" not in commands(model, max_multimodal_len=0)[1]


@pytest.mark.parametrize(
    ("family", "config", "options", "reason"),
    [
        ("llama-3.1", {}, {"tensor_parallel_size": 3}, "--tp 3 does not divide the 4 attention heads"),
        ("llama-3.1", {}, {"max_sequence_length": 9000}, "--max-seq-len 9000 is more than the 8192 tokens of llama"),
        ("gemma-2", {}, {"max_sequence_length": 5000}, "--max-seq-len 5000 is more than the 4096 tokens of gemma-2"),
        ("gemma-2", {}, {"pipeline_parallel_size": 2}, "without pipeline parallelism: leave --pp out"),
        ("llama-3.1", {}, {"max_multimodal_len": 9}, "is a text model: leave --max-multimodal-len out"),
        ("internlm2", {}, {"quantization": "fp8"}, "internlm2 has no recipe for fp8; it has none, int8_wo, int4_wo"),
        ("internlm2", {}, {"kv_cache_dtype": "fp8"}, r"internlm2 is not known to quantize\.py"),
        ("llama-3.1", {"quantization_config": {"quant_method": "fp8"}}, {}, "quantised already .fp8.* --engine trtllm"),
        (
            "llama-3.1",
            {"quantization_config": {"quant_method": "awq"}},
            {"quantization": "int8_wo"},
            "quantised already .awq.: leave --quantization out",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(
    family: str, config: dict[str, Any], options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    model = write_weights(tmp_path / "model", FAMILIES[family].config, **config)
    with pytest.raises(BuildError, match=reason):
        commands(model, **options)


def test_a_path_that_quantize_would_misread_is_refused(tmp_path: Path) -> None:
    model = write_weights(tmp_path / "prompt-tuned-llama", LLAMA.config)
    with pytest.raises(BuildError, match=r'quantize\.py takes a path with "mpt" in it'):
        commands(model, quantization="fp8")
    assert "convert_checkpoint.py" in commands(model, quantization="int8_wo")[0]


def test_gemma_2_ends_where_its_recipe_does(tmp_path: Path) -> None:
    model = write_weights(tmp_path / "gemma", FAMILIES["gemma-2"].config)
    assert "--max_seq_len 4096 --max_input_len 4095" in commands(model)[1]


def test_a_command_can_be_pasted_into_a_shell() -> None:
    command = Command(
        "/usr/bin/python3", ("/a b/convert.py", "--model_dir", "/it's", "--use_weight_only", "--lora", "1", "2")
    )
    assert str(command) == (
        "/usr/bin/python3 '/a b/convert.py' \\\n    --model_dir '/it'\"'\"'s' \\\n"
        "    --use_weight_only \\\n    --lora 1 2"
    )


# Memory


def page(model: Path, gib: float | None = None, **options: Any) -> Any:
    return count_memory(EnginePlan.make(model, EngineOptions(**options)), None if gib is None else int(gib * GIB))


def test_weights_are_counted_by_quantisation_and_gpus_and_the_vision_tower_is_not(llama: Path) -> None:
    ends = 300 * 64
    assert page(llama).num_parameters == 1000 + 2 * ends
    assert page(llama).weight_bytes == 2 * (1000 + 2 * ends)
    assert page(llama, quantization="fp8").weight_bytes == 1000 + 2 * 2 * ends
    assert page(llama, quantization="int4_wo").weight_bytes == 500 + 2 * 2 * ends
    assert page(llama, tensor_parallel_size=2).weight_bytes == 1000 + 2 * ends + ends  # the embedding is on each
    assert page(llama, pipeline_parallel_size=2).weight_bytes == 1000 + 2 * ends  # one end on each


def test_an_output_layer_that_is_the_embedding_takes_its_place_twice(llama: Path) -> None:
    write_safetensors(llama / "model.safetensors", {"model.embed_tokens.weight": (300, 64)})
    assert page(llama).weight_bytes == 2 * 2 * 300 * 64


def test_the_kv_cache_follows_its_dtype_and_the_gpus(llama: Path) -> None:
    whole = 2 * 2 * 2 * 16 * 2  # keys and values, layers, heads, head size, bytes
    assert page(llama).kv_bytes_per_token == whole
    assert page(llama, quantization="fp8").kv_bytes_per_token == whole // 2
    assert page(llama, tensor_parallel_size=2, pipeline_parallel_size=2).kv_bytes_per_token == whole // 4


def test_what_is_left_is_told_in_tokens_and_sequences(llama: Path) -> None:
    counted = page(llama, gib=2.0, max_num_tokens=16, max_batch_size=1)
    left = int(0.9 * (2 * GIB - counted.weight_bytes - counted.activation_bytes))
    assert f"90% of the rest hold {left // 256} tokens of KV cache" in str(counted)
    assert f"{left // 256 / 8192:.1f} sequences of 8192 tokens at a time" in str(counted)
    assert "no nvidia-smi here: name its memory with --gpu-memory-gib" in str(page(llama))
    assert "the weights fit, and nothing beside them" in str(page(llama, gib=0.5))


def test_weights_that_fit_nowhere_are_refused_with_the_way_out(tmp_path: Path) -> None:
    model = write_weights(tmp_path / "large", LLAMA.config)
    write_safetensors(model / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": (2**20, 2**13)})
    machine = BuildMachine(gpu_memory_gib=15.0)
    with pytest.raises(BuildError, match=r"the weights alone take 16\.0 GiB of each GPU, which has 15\.0 GiB: .*--tp"):
        describe_build(model, EngineOptions(), machine, tmp_path / "engine")
    assert "8.59 billion" in describe_build(model, EngineOptions(quantization="fp8"), machine, tmp_path / "engine")


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (9).to_bytes(8, "little") + b"not json!"])
def test_a_damaged_weight_file_is_named(content: bytes, llama: Path) -> None:
    (llama / "model.safetensors").write_bytes(content)
    with pytest.raises(BuildError, match=r"model\.safetensors is no safetensors file"):
        page(llama)
