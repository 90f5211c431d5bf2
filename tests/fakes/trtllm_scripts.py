"""Stand-ins for the scripts in TensorRT-LLM's examples folder, release 1.2.

Each takes the flags of the real one, refuses all others as argparse does, and writes a checkpoint in TensorRT-LLM's
format, which the fake trtllm-build reads. Source of the flags: `parse_arguments` of each script.

FAKE_TRTLLM=fail:TOOL makes a tool fail, hang:TOOL makes it wait for ever; TOOL is convert or build.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRECISIONS = {"int8": "W8A16", "int4": "W4A16"}
ALGORITHMS = {
    "full_prec": None,
    "fp8": "FP8",
    "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN",
    "nvfp4": "NVFP4",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its flags, without their dashes; `choices` are texts out of a few."""

    path: str
    texts: str
    numbers: str
    switches: str
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    required: str = ""


DTYPES = {"dtype": ("auto", "float16", "bfloat16", "float32")}
LLAMA_SIZES = "vocab_size n_positions n_layer n_head n_kv_head n_embd inter_size multiple_of moe_num_experts moe_top_k"
SCRIPTS: Mapping[str, Script] = {
    "llama": Script(
        "models/core/llama/convert_checkpoint.py",
        "model_dir output_dir meta_ckpt_dir calib_dataset quant_ckpt_path smoothquant hidden_act rotary_base log_level "
        "rms_norm_eps ffn_dim_multiplier",
        "tp_size pp_size cp_size moe_tp_size moe_ep_size workers group_size calib_size calib_max_seq_length "
        f"embedding_sharding_dim moe_renorm_mode {LLAMA_SIZES}",
        "use_weight_only disable_weight_only_quant_plugin use_qserve per_channel per_token int8_kv_cache fp8_kv_cache "
        "use_fp8 use_nvfp4 use_fp8_rowwise use_meta_fp8_rowwise_recipe per_group load_by_shard load_model_on_cpu "
        "use_parallel_embedding save_config_only remove_duplicated_kv_heads",
        {**DTYPES, "weight_only_precision": ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq")},
    ),
    "mllama": Script(
        "models/core/mllama/convert_checkpoint.py",
        "model_dir output_dir meta_ckpt_dir calib_dataset quant_ckpt_path smoothquant hidden_act rotary_base log_level "
        "rms_norm_eps ffn_dim_multiplier",
        "tp_size pp_size moe_tp_size moe_ep_size workers group_size embedding_sharding_dim moe_renorm_mode "
        f"{LLAMA_SIZES}",
        "use_weight_only disable_weight_only_quant_plugin per_channel per_token int8_kv_cache fp8_kv_cache use_fp8 "
        "use_fp8_rowwise per_group load_by_shard load_model_on_cpu use_parallel_embedding save_config_only",
        {**DTYPES, "weight_only_precision": ("int8", "int4", "int4_gptq")},
    ),
    "qwen": Script(
        "models/core/qwen/convert_checkpoint.py",
        "model_dir output_dir calib_dataset smoothquant",
        "tp_size pp_size cp_size moe_tp_size moe_ep_size workers group_size embedding_sharding_dim",
        "use_weight_only disable_weight_only_quant_plugin per_channel per_token int8_kv_cache per_group "
        "load_model_on_cpu use_parallel_embedding",
        {**DTYPES, "weight_only_precision": ("int8", "int4", "int4_gptq")},
    ),
    "gemma": Script(
        "models/core/gemma/convert_checkpoint.py",
        "model_dir output_dir quant_ckpt_path calib_dataset smoothquant tokenizer_dir",
        "world-size",
        "use_weight_only use-int8-weight-only-embedding enable_fp8 fp8_kv_cache use_smooth_quant int8_kv_cache "
        "per_channel per_token load_model_on_cpu",
        {
            **DTYPES,
            "ckpt-type": ("jax", "keras", "torch", "hf"),
            "weight_only_precision": ("int8", "int4", "w4a8_awq", "w4a16_awq"),
        },
        required="ckpt-type",
    ),
    "glm": Script(
        "models/core/glm-4-9b/convert_checkpoint.py",
        "model_dir output_dir calib_dataset smoothquant log_level",
        "tp_size pp_size cp_size workers embedding_sharding_dim",
        "use_weight_only per_channel per_token int8_kv_cache load_model_on_cpu use_parallel_embedding",
        {
            **DTYPES,
            "chatglm_version": ("glm4", "chatglm3", "chatglm2", "chatglm", "glm"),
            "logits_dtype": ("float16", "float32"),
            "weight_only_precision": ("int8", "int4"),
            "device": ("cuda", "cpu"),
        },
        required="chatglm_version",  # the real one guesses it from the folder's name
    ),
    "internlm2": Script(
        "models/core/internlm2/convert_checkpoint.py",
        "model_dir output_dir log_level",
        "tp_size pp_size workers embedding_sharding_dim",
        "use_weight_only use_parallel_embedding",
        {"dtype": ("float16", "bfloat16", "float32"), "weight_only_precision": ("int8", "int4")},
    ),
    "phi": Script(
        "models/core/phi/convert_checkpoint.py",
        "model_dir output_dir",
        "tp_size pp_size moe_tp_size moe_ep_size workers",
        "use_weight_only",
        {**DTYPES, "weight_only_precision": ("int8", "int4")},
    ),
    "quantize": Script(
        "quantization/quantize.py",
        "model_dir nemo_ckpt_path output_dir calib_dataset medusa_hidden_act medusa_model_dir autoq_format "
        "auto_quantize_bits",
        "tp_size pp_size cp_size calib_tp_size calib_pp_size batch_size calib_size calib_max_seq_length awq_block_size "
        "seed tokenizer_max_seq_length num_medusa_heads num_medusa_layers max_draft_len",
        "quantize_lm_head quant_medusa_head",
        {
            **DTYPES,
            "qformat": tuple(ALGORITHMS),
            "kv_cache_dtype": ("int8", "fp8"),
            "decoder_type": ("gptnext", "llama"),
            "device": ("cuda", "cpu"),
            "device_map": ("auto", "sequential", "cpu", "gpu"),
        },
    ),
}


def write_examples(folder: Path) -> Path:
    """Write an examples folder whose scripts are these."""
    for name, script in SCRIPTS.items():
        file = folder / script.path
        file.parent.mkdir(parents=True, exist_ok=True)
        start = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        file.write_text(f"{start}from tests.fakes.trtllm_scripts import main\nmain({name!r})\n")
    return folder


def parser(script: Script) -> argparse.ArgumentParser:
    """The parser of a script."""
    flags = argparse.ArgumentParser()
    for name in script.texts.split():
        flags.add_argument(f"--{name}")
    for name in script.numbers.split():
        flags.add_argument(f"--{name}", type=int, default=1)
    for name in script.switches.split():
        flags.add_argument(f"--{name}", action="store_true")
    for name, allowed in script.choices.items():
        flags.add_argument(f"--{name}", choices=allowed, required=name in script.required.split())
    return flags


def main(name: str) -> None:
    """Run one script."""
    asked = vars(parser(SCRIPTS[name]).parse_args())
    tensor, pipeline = asked.get("tp_size", asked.get("world_size")), asked.get("pp_size", 1)
    if name in ("glm", "phi"):
        assert pipeline == 1, "Pipeline parallelism is not supported."
    algorithm = ALGORITHMS[asked["qformat"]] if name == "quantize" else None
    if asked.get("use_weight_only"):
        algorithm = PRECISIONS[asked["weight_only_precision"]]
    print("[TensorRT-LLM] TensorRT LLM version: 1.2.1", flush=True)
    act_as_told("convert")
    mapping = {
        "world_size": tensor * pipeline,
        "tp_size": tensor,
        "pp_size": pipeline,
        "cp_size": 1,
        "gpus_per_node": 8,
    }
    kv = asked.get("kv_cache_dtype")
    quantisation = {"quant_algo": algorithm, "kv_cache_quant_algo": kv and kv.upper()}
    document = describe(Path(asked["model_dir"])) | {
        "dtype": asked["dtype"],
        "mapping": mapping,
        "quantization": quantisation,
    }
    target = Path(asked["output_dir"])
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(document))
    for rank in range(tensor * pipeline):
        (target / f"rank{rank}.safetensors").write_bytes(b"converted")


def describe(model: Path) -> dict[str, Any]:
    """What a converted checkpoint says of its model."""
    config = json.loads((model / "config.json").read_text())
    text = config.get("llm_config") or config.get("text_config") or config
    heads = text["num_attention_heads"]
    return {
        "architecture": (text.get("architectures") or config["architectures"])[0],
        "vocab_size": text.get("vocab_size") or text["padded_vocab_size"],
        "hidden_size": text["hidden_size"],
        "num_hidden_layers": text.get("num_hidden_layers") or text["num_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": text.get("num_key_value_heads") or text.get("multi_query_group_num") or heads,
        "head_size": text.get("head_dim") or text["hidden_size"] // heads,
        "max_position_embeddings": text.get("max_position_embeddings") or text["seq_length"],
    }


def act_as_told(tool: str) -> None:
    """Fail or hang, where the test asks for it."""
    how, _, which = os.environ.get("FAKE_TRTLLM", "").partition(":")
    if which != tool:
        return
    if how == "fail":
        print("[TRT-LLM] [E] out of memory: 12 GiB wanted", file=sys.stderr)
        sys.exit(3)
    print(f"[TRT-LLM] [I] {tool} hangs", flush=True)
    time.sleep(3600)
