"""Runs in the conversion environment: writes a tiny random Hugging Face model and the logits of transformers for it.

python hf_reference.py ARCHITECTURE FOLDER TOKEN_IDS LOGITS_FILE: FOLDER has a config.json that states the vocabulary's
size, token ids are separated by commas. The weights are stored in bfloat16, as most published ones are.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig

SHAPE: dict[str, object] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.125,
}
# by architecture: what goes into the text part of a model that reads images, and its vision part
SEEING: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "qwen2_vl": (
        {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2},
    ),
    "llava": (
        {"model_type": "llama"},
        {
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 28,
            "patch_size": 14,
        },
    ),
}


def main(architecture: str, folder: Path, token_ids: list[int], logits_file: Path) -> None:
    torch.manual_seed(0)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    known = {key: config[key] for key in ("vocab_size", "max_position_embeddings", "eos_token_id")}
    kind = AutoModelForImageTextToText if architecture in SEEING else AutoModelForCausalLM
    model = kind.from_config(make_config(architecture, {**SHAPE, **known}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases, all alike otherwise
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(torch.bfloat16).save_pretrained(folder)
    stored = kind.from_pretrained(folder, torch_dtype=torch.float32)
    np.save(logits_file, stored(torch.tensor([token_ids])).logits[0].detach().numpy())


def make_config(architecture: str, text: dict[str, object]) -> PretrainedConfig:
    if architecture not in SEEING:
        return AutoConfig.for_model(architecture, **text)
    more, vision = SEEING[architecture]
    image_token = {"image_token_id": 5, "image_token_index": 5}
    return AutoConfig.for_model(architecture, text_config=text | more, vision_config=vision, **image_token)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [int(token) for token in sys.argv[3].split(",")], Path(sys.argv[4]))
