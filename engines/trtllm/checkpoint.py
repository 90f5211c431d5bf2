"""What a Hugging Face checkpoint folder says about its model, and what that costs in memory.

Source of the names: config.json as `transformers` writes it, and as the code that comes with ChatGLM and Qwen does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engines.trtllm.errors import TensorRTLLMError

CONFIG_FILE = "config.json"
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "int8": 1}
_NESTED_KEYS = ("text_config", "llm_config")
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_layers",),
    "num_key_value_heads": ("multi_query_group_num",),
    "head_dim": ("kv_channels",),
    "vocab_size": ("padded_vocab_size",),
    "intermediate_size": ("ffn_hidden_size",),
    "max_position_embeddings": ("seq_length", "n_positions", "max_sequence_length"),
}


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
        self.config = read_json(path / CONFIG_FILE)
        _refuse_other_kinds(path, self.config)

    @property
    def architecture(self) -> str:
        """The class of the model, such as LlamaForCausalLM."""
        names = self.config.get("architectures")
        if not isinstance(names, list) or not names:
            raise TensorRTLLMError(f"{self.path / CONFIG_FILE} names no architecture")
        return str(names[0])

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the configuration."""
        nested = (self.config.get(name) for name in _NESTED_KEYS)
        return next((part for part in nested if isinstance(part, Mapping)), self.config)

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
        hidden_size = self.number("hidden_size")
        return ModelShape(
            num_layers=self.number("num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=heads,
            num_kv_heads=self._optional("num_key_value_heads") or heads,
            head_size=self._optional("head_dim") or hidden_size // heads,
            vocab_size=self.vocab_size,
            dtype=self.dtype,
        )

    @property
    def num_heads(self) -> int:
        """Attention heads of each layer."""
        return self.number("num_attention_heads")

    @property
    def vocab_size(self) -> int:
        """Rows of the output layer, which may be more than the tokenizer has tokens."""
        return self.number("vocab_size")

    @property
    def max_sequence_length(self) -> int:
        """Tokens that the model was made for."""
        return self.number("max_position_embeddings")

    @property
    def dtype(self) -> str:
        """Of the weights as they are computed with; a checkpoint that says none is float16, as TensorRT-LLM has it."""
        stated = (config.get(key) for config in (self.text_config, self.config) for key in ("torch_dtype", "dtype"))
        name = next((value for value in stated if value), "float16")
        if not isinstance(name, str) or name not in DTYPE_BYTES:
            raise TensorRTLLMError(f"{self.path / CONFIG_FILE} has an unknown torch_dtype {name!r}")
        return name

    @property
    def quantisation(self) -> str | None:
        """What ModelOpt or another tool made of the weights, None for plain ones."""
        file = self.path / "hf_quant_config.json"  # ModelOpt's
        if file.is_file():
            return str(read_json(file).get("quantization", {}).get("quant_algo"))
        quantised = self.config.get("quantization_config")
        return str(quantised.get("quant_method")) if isinstance(quantised, Mapping) else None

    def number(self, name: str) -> int:
        """Return a number of the language model, by transformers' name for it. Raises TensorRTLLMError."""
        value = self._optional(name)
        if value is None:
            raise TensorRTLLMError(f"{self.path / CONFIG_FILE} has no number {name}")
        return value

    def _optional(self, name: str) -> int | None:
        found = (self.text_config.get(key) for key in (name, *_ALIASES.get(name, ())))
        return next((value for value in found if type(value) is int and value > 0), None)


def is_engine_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a prebuilt engine."""
    return {"pretrained_config", "build_config"} <= config.keys()


def _refuse_other_kinds(path: Path, config: Mapping[str, Any]) -> None:
    if is_engine_config(config):
        raise TensorRTLLMError(
            f"{path} is a prebuilt TensorRT engine; a checkpoint is needed here, in Hugging Face's format"
        )
    if {"architecture", "dtype"} <= config.keys():
        length = config.get("max_position_embeddings")
        limit = f" --max_input_len {length - 1} --max_seq_len {length}" if isinstance(length, int) else ""
        raise TensorRTLLMError(
            f"{path} is a checkpoint in TensorRT-LLM's own format; build its engine first: trtllm-build "
            f"--checkpoint_dir {path} --output_dir ENGINE --gemm_plugin auto --use_paged_context_fmha enable{limit}; "
            "then serve ENGINE with --tokenizer and the folder of the Hugging Face model"
        )


def read_json(file: Path, kind: str = "Hugging Face checkpoint") -> dict[str, Any]:
    """Read a JSON object in the folder of a model of this kind. Raises TensorRTLLMError."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise TensorRTLLMError(f"{file.parent} is no {kind}: {file.name} is missing") from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise TensorRTLLMError(f"{file} cannot be read: {exc}") from exc
    if not isinstance(document, dict):
        raise TensorRTLLMError(f"{file} is not a JSON object")
    return document
