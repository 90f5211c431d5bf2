"""What a Hugging Face checkpoint folder says about its model, and what that costs in memory.

Source of the names: config.json as `transformers` writes it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engines.trtllm.errors import TensorRTLLMError

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that decide about memory."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    dtype: str

    def kv_bytes_per_token(self, kv_dtype: str, tensor_parallel_size: int, pipeline_parallel_size: int) -> int:
        """Bytes that one token's keys and values take on the GPU that holds most of them."""
        layers = -(-self.num_layers // pipeline_parallel_size)
        heads = -(-self.num_kv_heads // tensor_parallel_size)  # fewer heads than GPUs: each has a copy of one
        size = DTYPE_BYTES[self.dtype if kv_dtype == "auto" else kv_dtype]
        return 2 * layers * heads * self.head_size * size


class Checkpoint:
    """A checkpoint folder. Raises TensorRTLLMError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = read_json(path / "config.json")
        if {"pretrained_config", "build_config"} <= self.config.keys():
            raise TensorRTLLMError(
                f"{path} is a prebuilt TensorRT engine, which is tied to one GPU and release; "
                "serve the Hugging Face checkpoint that it was built from"
            )

    @property
    def architecture(self) -> str:
        """The class of the model, such as LlamaForCausalLM."""
        names = self.config.get("architectures") or []
        if not names:
            raise TensorRTLLMError(f"{self.path / 'config.json'} names no architecture")
        return str(names[0])

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the configuration."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    @cached_property
    def shape(self) -> ModelShape:
        """Raises TensorRTLLMError for a model whose KV cache is not made of keys and values per head."""
        config = self.text_config
        for name in ("kv_lora_rank", "ssm_cfg", "mamba_d_state", "linear_num_value_heads"):
            if config.get(name) is not None:
                raise TensorRTLLMError(
                    f"the KV cache of {self.architecture} is not counted per head ({name}): "
                    "set kv_cache_fraction instead of kv_cache_gib"
                )
        heads = self.num_heads
        hidden_size = self._number("hidden_size")
        return ModelShape(
            num_layers=self._number("num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden_size // heads),
            vocab_size=self.vocab_size,
            dtype=self.dtype,
        )

    @property
    def num_heads(self) -> int:
        """Attention heads of each layer."""
        return self._number("num_attention_heads")

    @property
    def vocab_size(self) -> int:
        """Rows of the output layer, which may be more than the tokenizer has tokens."""
        return self._number("vocab_size")

    @property
    def max_sequence_length(self) -> int:
        """Tokens that the model was made for."""
        return self._number("max_position_embeddings")

    @property
    def dtype(self) -> str:
        """Of the weights as they are computed with; a checkpoint that says none is float16, as TensorRT-LLM has it."""
        name = self.text_config.get("torch_dtype") or self.text_config.get("dtype") or "float16"
        if name not in DTYPE_BYTES:
            raise TensorRTLLMError(f"{self.path / 'config.json'} has an unknown torch_dtype {name!r}")
        return str(name)

    @property
    def quantisation(self) -> str | None:
        """What ModelOpt or another tool made of the weights, None for plain ones."""
        file = self.path / "hf_quant_config.json"  # ModelOpt's
        if file.is_file():
            return str(read_json(file).get("quantization", {}).get("quant_algo"))
        quantised = self.config.get("quantization_config")
        return str(quantised.get("quant_method")) if isinstance(quantised, Mapping) else None

    @property
    def weight_bytes(self) -> int:
        """Size of all weight files."""
        return sum(file.stat().st_size for file in self.path.glob("*.safetensors"))

    def _number(self, name: str) -> int:
        value = self.text_config.get(name)
        if not isinstance(value, int):
            raise TensorRTLLMError(f"{self.path / 'config.json'} has no number {name}")
        return value


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises TensorRTLLMError."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise TensorRTLLMError(f"{file.parent} is no Hugging Face checkpoint: {file.name} is missing") from exc
    except (OSError, ValueError) as exc:
        raise TensorRTLLMError(f"{file} cannot be read: {exc}") from exc
    if not isinstance(document, dict):
        raise TensorRTLLMError(f"{file} is not a JSON object")
    return document
