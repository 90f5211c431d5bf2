"""Tiny random LoRA adapters, as PEFT writes them, for the tiny llama of tests/trtllm_fixtures.py."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

SIZES = {
    "q_proj": (64, 64),
    "k_proj": (64, 32),
    "v_proj": (64, 32),
    "o_proj": (64, 64),
    "gate_proj": (64, 128),
    "up_proj": (64, 128),
    "down_proj": (128, 64),
}
"""The width of each layer's input and output."""
NUM_LAYERS = 2
Shapes = dict[str, tuple[int, ...]]


def shapes_of(modules: Iterable[str], rank: int) -> Shapes:
    """The tensors of an adapter by their names."""
    found: Shapes = {}
    for layer in range(NUM_LAYERS):
        for module in modules:
            part = "mlp" if module in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            place = f"base_model.model.model.layers.{layer}.{part}.{module}"
            found[f"{place}.lora_A.weight"] = (rank, SIZES[module][0])
            found[f"{place}.lora_B.weight"] = (SIZES[module][1], rank)
    return found


def write_adapter(
    folder: Path,
    modules: Iterable[str] = ("q_proj", "v_proj"),
    *,
    rank: int = 4,
    seed: int = 0,
    shapes: Shapes | None = None,
    dtype: str = "F32",
    **fields: object,
) -> Path:
    """Write an adapter; `fields` change its configuration, and `shapes` replace its tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", **fields}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(seed)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    weights = b""
    for name, shape in (shapes_of(modules, rank) if shapes is None else shapes).items():
        data = rng.normal(size=shape).astype(np.float32).tobytes()
        offsets = [len(weights), len(weights) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        weights += data
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + weights)
    return folder
