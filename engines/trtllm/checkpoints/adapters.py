"""LoRA adapters (Hu et al. 2021) in folders that PEFT wrote, checked before anything is started.

TensorRT-LLM 1.2 loads an adapter with the first request for it; one that does not load ends the whole engine, and what
an adapter has that it does not apply, it leaves out without a word. So either is refused here.
Source: `LoraManager.load_from_hf`, tensorrt_llm/lora_manager.py; tensorrt_llm/_torch/models/, release 1.2. That Qwen
models fail, and that Mistral leaves the MLP out: NVIDIA/TensorRT-LLM pull requests 12771 and 12785.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.config import TensorRTLLMConfig
from engines.trtllm.checkpoint import Checkpoint, read_json
from engines.trtllm.checkpoints.settings import Deferred
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.runtime import import_part
from engines.trtllm.safetensors import read_header

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
MODULES: Mapping[str, str] = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "up_proj": "mlp_gate",
    "down_proj": "mlp_4h_to_h",
}
"""Layers that an adapter may change, by their names in transformers and in TensorRT-LLM."""
APPLIED: Mapping[str, frozenset[str]] = {
    "LlamaForCausalLM": frozenset(MODULES),
    "MistralForCausalLM": frozenset(("q_proj", "k_proj", "v_proj", "o_proj")),
}
"""What the PyTorch backend applies, by architecture."""
_QKV = frozenset(("attn_q", "attn_k", "attn_v"))
_DTYPES = ("F32", "F16", "BF16")
_TENSOR = re.compile(r"base_model\.model\.model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight")
_LEFT_OUT: Mapping[str, tuple[object, ...]] = {
    "bias": ("none",),
    "use_dora": (False,),
    "lora_bias": (False,),
    "fan_in_fan_out": (False,),
    "modules_to_save": ([],),
    "alpha_pattern": ({},),
    "layer_replication": ([],),
    "target_parameters": ([],),
    "trainable_token_indices": ([], {}),
}
"""Settings that TensorRT-LLM does not apply, with the values that ask for nothing (null always does)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that fits its model."""

    name: str
    path: Path
    rank: int
    """The largest of its layers'."""
    modules: frozenset[str]
    """The layers that it changes, by their names in transformers."""


def read_adapters(
    folders: Mapping[str, Path], checkpoint: Checkpoint, tensor_parallel_size: int
) -> tuple[Adapter, ...]:
    """Read adapters of a checkpoint. Raises TensorRTLLMError naming the adapter and what is wrong with it."""
    if not folders:
        return ()
    if checkpoint.architecture not in APPLIED:
        known = " and ".join(sorted(APPLIED))
        raise TensorRTLLMError(f"TensorRT-LLM 1.2 applies adapters to {known}, not to {checkpoint.architecture}")
    if checkpoint.shape.num_kv_heads % tensor_parallel_size:
        raise TensorRTLLMError(
            f"adapters need a tensor_parallel_size that divides the {checkpoint.shape.num_kv_heads} key/value heads"
        )
    return tuple(_read(name, path.expanduser().resolve(), checkpoint) for name, path in folders.items())


def lora_arguments(adapters: Sequence[Adapter], config: TensorRTLLMConfig) -> dict[str, Any]:
    """Return the arguments of LLM that make room for adapters."""
    if not adapters:
        return {}
    modules = {MODULES[module] for adapter in adapters for module in adapter.modules}
    if modules & _QKV:
        modules |= _QKV  # their kernel knows all three or none
    arguments = {
        "lora_target_modules": sorted(modules),
        "max_lora_rank": max(adapter.rank for adapter in adapters),
        "max_loras": config.max_loras or len(adapters),
        "max_cpu_loras": config.max_cpu_loras or len(adapters),
    }
    return {"lora_config": Deferred("LoraConfig", arguments, "tensorrt_llm.lora_helper")}


def lora_requests(adapters: Sequence[Adapter]) -> dict[str, Any]:
    """Return what a request names each adapter by; their numbers keep prefix blocks of different adapters apart."""
    if not adapters:
        return {}
    make = import_part("tensorrt_llm.executor.request").LoRARequest
    return {adapter.name: make(adapter.name, number, str(adapter.path)) for number, adapter in enumerate(adapters, 1)}


def _read(name: str, path: Path, checkpoint: Checkpoint) -> Adapter:
    try:
        _check_config(path)
        ranks = _ranks(path, checkpoint)
    except ValueError as exc:
        raise TensorRTLLMError(f"the adapter {name!r} in {path} cannot be served: {exc}") from exc
    return Adapter(name, path, max(ranks.values()), frozenset(ranks))


def _check_config(path: Path) -> None:
    if not (path / CONFIG_FILE).is_file():
        raise ValueError(f"there is no {CONFIG_FILE}")
    config = read_json(path / CONFIG_FILE)
    if config.get("peft_type") != "LORA":
        raise ValueError(f"its peft_type is {config.get('peft_type')!r}, not 'LORA'")
    for key in ("r", "lora_alpha"):
        if not isinstance(config.get(key), int | float) or config[key] <= 0:
            raise ValueError(f"{CONFIG_FILE} has no number {key} above 0")
    for key, harmless in _LEFT_OUT.items():
        if config.get(key) is not None and config[key] not in harmless:
            raise ValueError(f"TensorRT-LLM 1.2 does not apply {key} = {config[key]!r}")


def _ranks(path: Path, checkpoint: Checkpoint) -> dict[str, int]:
    """The largest rank of each module. Raises ValueError for tensors that do not fit the model."""
    try:
        header = read_header(path / WEIGHTS_FILE)
    except FileNotFoundError as exc:
        raise ValueError(f"there is no {WEIGHTS_FILE}") from exc
    except OSError as exc:
        raise ValueError(f"{WEIGHTS_FILE} cannot be read: {exc}") from exc
    pairs: dict[tuple[int, str], dict[str, tuple[int, ...]]] = {}
    for tensor, entry in header.items():
        layer, module, side = _place(tensor, checkpoint)
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{tensor} is {entry['dtype']}, not one of {', '.join(_DTYPES)}")
        if len(entry["shape"]) != 2:
            raise ValueError(f"{tensor} is no matrix, but {entry['shape']}")
        pairs.setdefault((layer, module), {})[side] = tuple(entry["shape"])
    if not pairs:
        raise ValueError(f"{WEIGHTS_FILE} is empty")
    ranks: dict[str, int] = {}
    for (layer, module), sides in pairs.items():
        ranks[module] = max(ranks.get(module, 0), _rank(layer, module, sides, checkpoint))
    return ranks


def _place(tensor: str, checkpoint: Checkpoint) -> tuple[int, str, str]:
    found = _TENSOR.fullmatch(tensor)
    applied = APPLIED[checkpoint.architecture]
    if found is None or found[2] not in applied:
        names = ", ".join(sorted(applied))
        raise ValueError(f"TensorRT-LLM 1.2 does not apply {tensor} to {checkpoint.architecture}, only {names}")
    layer, num_layers = int(found[1]), checkpoint.shape.num_layers
    if layer >= num_layers:
        raise ValueError(f"{tensor} belongs to a layer that the model, which has {num_layers}, has not")
    return layer, found[2], found[3]


def _rank(layer: int, module: str, sides: Mapping[str, tuple[int, ...]], checkpoint: Checkpoint) -> int:
    place = f"{module} of layer {layer}"
    if sides.keys() != {"A", "B"}:
        raise ValueError(f"{place} lacks lora_A or lora_B")
    (rank, num_in), (num_out, rank_out) = sides["A"], sides["B"]
    if rank != rank_out:
        raise ValueError(f"{place} has a rank of {rank} in lora_A and of {rank_out} in lora_B")
    if (num_in, num_out) != (wanted := _sizes(module, checkpoint)):
        raise ValueError(f"{place} maps {num_in} to {num_out}, but the model's maps {wanted[0]} to {wanted[1]}")
    return rank


def _sizes(module: str, checkpoint: Checkpoint) -> tuple[int, int]:
    """The width of a layer's input and output."""
    shape = checkpoint.shape
    heads, kv_heads = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    if module in ("gate_proj", "up_proj"):
        return shape.hidden_size, checkpoint.number("intermediate_size")
    if module == "down_proj":
        return checkpoint.number("intermediate_size"), shape.hidden_size
    return {
        "q_proj": (shape.hidden_size, heads),
        "k_proj": (shape.hidden_size, kv_heads),
        "v_proj": (shape.hidden_size, kv_heads),
        "o_proj": (heads, shape.hidden_size),
    }[module]
