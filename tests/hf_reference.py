"""Runs in the conversion environment: writes a tiny random Hugging Face model and the logits of transformers for it.

python hf_reference.py ARCHITECTURE FOLDER TOKEN_IDS LOGITS_FILE: FOLDER has a config.json that states the vocabulary's
size, token ids are separated by commas. The weights are stored in bfloat16, as most published ones are.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.125,
}


def main(architecture: str, folder: Path, token_ids: list[int], logits_file: Path) -> None:
    torch.manual_seed(0)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    known = {key: config[key] for key in ("vocab_size", "max_position_embeddings", "eos_token_id")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **SHAPE, **known))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms and biases, all alike otherwise
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(torch.bfloat16).save_pretrained(folder)
    stored = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    np.save(logits_file, stored(torch.tensor([token_ids])).logits[0].detach().numpy())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [int(token) for token in sys.argv[3].split(",")], Path(sys.argv[4]))
