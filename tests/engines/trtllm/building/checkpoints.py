"""Checkpoints with weights: safetensors files whose tensors are all zero, of any size."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_safetensors(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    """Write bfloat16 tensors; the file has holes, so that it takes no room."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + end)
    return file


def write_weights(folder: Path, config: Mapping[str, Any], **fields: Any) -> Path:
    """Write config.json and a model.safetensors of 1000 numbers in the layers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    shapes = {
        "model.embed_tokens.weight": (300, 64),
        "model.layers.0.mlp.up_proj.weight": (10, 100),
        "lm_head.weight": (300, 64),
        "vision_model.patch.weight": (1000, 1000),
    }
    write_safetensors(folder / "model.safetensors", shapes)
    return folder
