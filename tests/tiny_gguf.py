"""Tiny random GGUF files: 2 layers of hidden size 64 with a real byte-level vocabulary, converted in half a second."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from tests.tiny_vocabulary import TinyVocabulary, byte_pair_vocabulary

RopeScaling = Literal["none", "linear", "factors", "yarn"]
ROPE_FACTOR = 4.0  # of linear scaling; the factors of Llama 3.1 rise from 1 to this


@dataclass(frozen=True, slots=True)
class TinyModel:
    """The shape of a tiny model.

    `quantisation` is a type of gguf by name; it is used for every matrix. `extra` are more numbers of the metadata.
    """

    architecture: str = "llama"
    quantisation: str = "f32"
    context_length: int = 512
    seed: int = 0
    num_layers: int = 2
    hidden_size: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    ffn_size: int = 128
    tied_head: bool = True
    rope_freq_base: float = 10_000.0
    rope_scaling: RopeScaling = "none"
    weight_scale: float = 1.0
    extra: Mapping[str, float] = field(default_factory=dict)
    vocabulary: TinyVocabulary = field(default_factory=byte_pair_vocabulary)


def write_tiny_gguf(path: Path, model: TinyModel | None = None, *, tensors_per_part: int = 0) -> Path:
    """Write a random model of this shape; the same shape and seed give the same bytes.

    With `tensors_per_part` it is split into files named `stem-00001-of-0000N.gguf`; the first one is returned.
    """
    model = model or TinyModel()
    writer = gguf.GGUFWriter(path, model.architecture, split_max_tensors=tensors_per_part)
    _add_parameters(writer, model)
    model.vocabulary.write(writer)
    for name, weights in _random_weights(model).items():
        _add_weights(writer, name, weights, model.quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if path.is_file() else next(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _add_parameters(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_name(f"Tiny {model.architecture}")
    writer.add_context_length(model.context_length)
    writer.add_block_count(model.num_layers)
    writer.add_embedding_length(model.hidden_size)
    writer.add_feed_forward_length(model.ffn_size)
    writer.add_head_count(model.num_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(model.rope_freq_base)
    if model.rope_scaling in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(model.rope_scaling))
        writer.add_rope_scaling_factor(ROPE_FACTOR)
    for key, value in model.extra.items():
        add = writer.add_int32 if isinstance(value, int) else writer.add_float32
        add(key, value)
    if model.head_size * model.num_heads != model.hidden_size:
        writer.add_key_length(model.head_size)
        writer.add_value_length(model.head_size)


def _random_weights(model: TinyModel) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(model.seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return rng.normal(0, model.weight_scale * columns**-0.5, (rows, columns)).astype(np.float32)

    def vector(size: int, mean: float) -> NDArray[np.float32]:
        return rng.normal(mean, 0.2, size).astype(np.float32)

    vocab_size = len(model.vocabulary.tokens)
    hidden, heads, kv_heads = model.hidden_size, model.num_heads * model.head_size, model.num_kv_heads * model.head_size
    weights = {"token_embd.weight": matrix(vocab_size, hidden), "output_norm.weight": vector(hidden, 1)}
    if not model.tied_head:
        weights["output.weight"] = matrix(vocab_size, hidden)
    if model.rope_scaling == "factors":
        weights["rope_freqs.weight"] = np.linspace(1, ROPE_FACTOR, model.head_size // 2, dtype=np.float32)
    for layer in range(model.num_layers):
        block = {
            "attn_norm.weight": vector(hidden, 1),
            "attn_q.weight": matrix(heads, hidden),
            "attn_k.weight": matrix(kv_heads, hidden),
            "attn_v.weight": matrix(kv_heads, hidden),
            "attn_output.weight": matrix(hidden, heads),
            "ffn_norm.weight": vector(hidden, 1),
            "ffn_gate.weight": matrix(model.ffn_size, hidden),
            "ffn_up.weight": matrix(model.ffn_size, hidden),
            "ffn_down.weight": matrix(hidden, model.ffn_size),
        }
        if model.architecture == "qwen2":
            block |= {f"attn_{part}.bias": vector(kv_heads if part in "kv" else heads, 0) for part in "qkv"}
        if model.architecture == "qwen3":
            block |= {f"attn_{part}_norm.weight": vector(model.head_size, 1) for part in "qk"}
        weights |= {f"blk.{layer}.{name}": values for name, values in block.items()}
    return weights


def _add_weights(writer: gguf.GGUFWriter, name: str, weights: NDArray[np.float32], quantisation: str) -> None:
    stored_as = GGMLQuantizationType[quantisation.upper() if weights.ndim == 2 else "F32"]
    try:
        stored = gguf.quantize(weights, stored_as)
    except NotImplementedError:  # gguf reads the type only; any bytes below 0x38 are blocks with scales below 1
        stored_shape = gguf.quant_shape_to_byte_shape(weights.shape, stored_as)
        stored = np.random.default_rng(len(name)).integers(0, 0x38, stored_shape, dtype=np.uint8)
    writer.add_tensor(name, stored, raw_dtype=stored_as)
