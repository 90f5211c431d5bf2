"""Adapters in the worker: loaded with the first request for each, as a shift of all logits that tells them apart."""

import json
import re
import zlib
from pathlib import Path

import numpy as np

from .executor.request import LoRARequest
from .llmapi.llm_args import TorchLlmArgs
from .model import Floats

HF_MODULES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "up_proj": "mlp_gate",
    "down_proj": "mlp_4h_to_h",
}
KEY = re.compile(r".*\.\d+\.\w+\.(\w+)\.lora_([AB])\.weight")


class LoraManager:
    """Without a lora_config requests for adapters are served by the plain model, and so are they by CUDA graphs."""

    def __init__(self, arguments: TorchLlmArgs, vocab_size: int) -> None:
        self._config = arguments.lora_config
        self._is_captured = arguments.cuda_graph_config is not None
        self._vocab_size = vocab_size
        self._shifts: dict[int, Floats] = {}
        if self._config is not None:
            assert self._config.lora_dir or self._config.lora_target_modules, (
                "Expecting at least one lora target module"
            )

    def shift(self, request: LoRARequest | None) -> Floats | float:
        """What is added to the logits; an adapter that does not load raises, which ends the worker."""
        if request is None or self._config is None:
            return 0.0
        if request.lora_int_id not in self._shifts:
            self._shifts[request.lora_int_id] = self._load(Path(request.lora_path))
        return 0.0 if self._is_captured else self._shifts[request.lora_int_id]

    def _load(self, folder: Path) -> Floats:
        alpha = json.loads((folder / "adapter_config.json").read_text())["lora_alpha"]
        raw = (folder / "adapter_model.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        strength = 0.0
        header.pop("__metadata__", None)
        for key, entry in header.items():
            found = KEY.match(key)
            if found is None:
                raise KeyError(f"unsupported key {key} from HF LoRA weights")
            assert found[1] in HF_MODULES, f"hf_module {found[1]} is not in supported list {set(HF_MODULES)}"
            rank = entry["shape"][0 if found[2] == "A" else 1]
            if rank > self._config.max_lora_rank:
                raise RuntimeError(f"adapter size {rank} is larger than the maximum {self._config.max_lora_rank}")
            if HF_MODULES[found[1]] in self._config.lora_target_modules:  # others are left out
                strength = alpha / rank
        shift = np.random.default_rng(zlib.crc32(raw)).normal(0, 3 * min(strength, 1.0), self._vocab_size)
        return shift.astype(np.float32)
