"""The llama, qwen2 and qwen3 networks in plain numpy float32, from the weights of a GGUF file: what engines must equal.

Matrices are rounded to float16 first, as an engine folder stores them. Sources: the modelling files of the three
architectures in Hugging Face transformers; the order of rotated pairs (adjacent for llama, halves for qwen) is that of
GGUF files.
"""

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class NumpyNetwork:
    """One model, run over a whole sequence at once."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._metadata = dict(reader.fields)
        self._architecture = str(self._metadata["general.architecture"].contents())
        self._weights = {tensor.name: _as_stored(tensor) for tensor in reader.tensors}
        self._num_heads = int(self._parameter("attention.head_count"))
        self._num_kv_heads = int(self._parameter("attention.head_count_kv"))
        self._eps = np.float32(self._parameter("attention.layer_norm_rms_epsilon"))
        self._head_size = self._weights["blk.0.attn_q.weight"].shape[0] // self._num_heads

    def logits(self, token_ids: list[int]) -> Array:
        """Return the logits after each token, [num_tokens, vocab_size]."""
        hidden = self._weights["token_embd.weight"][token_ids]
        for layer in range(int(self._parameter("block_count"))):
            hidden = hidden + self._attention(f"blk.{layer}", self._rms_norm(hidden, f"blk.{layer}.attn_norm"))
            hidden = hidden + self._feed_forward(f"blk.{layer}", self._rms_norm(hidden, f"blk.{layer}.ffn_norm"))
        head = self._weights.get("output.weight", self._weights["token_embd.weight"])
        return self._rms_norm(hidden, "output_norm") @ head.T

    def _attention(self, block: str, x: Array) -> Array:
        queries = self._heads(block, "q", x, self._num_heads)  # [heads, tokens, head_size]
        keys = self._heads(block, "k", x, self._num_kv_heads)
        values = self._heads(block, "v", x, self._num_kv_heads)
        group = self._num_heads // self._num_kv_heads
        keys, values = np.repeat(keys, group, axis=0), np.repeat(values, group, axis=0)
        scores = queries @ keys.transpose(0, 2, 1) / np.float32(np.sqrt(self._head_size))
        future = np.triu(np.ones(scores.shape[1:], dtype=bool), k=1)
        mixed = _softmax(np.where(future, np.float32(-np.inf), scores)) @ values
        joined: Array = mixed.transpose(1, 0, 2).reshape(len(x), -1)
        return joined @ self._weights[f"{block}.attn_output.weight"].T

    def _heads(self, block: str, part: str, x: Array, num_heads: int) -> Array:
        projected = x @ self._weights[f"{block}.attn_{part}.weight"].T
        projected = projected + self._weights.get(f"{block}.attn_{part}.bias", np.float32(0))
        heads = projected.reshape(len(x), num_heads, self._head_size)
        if part == "v":
            return heads.transpose(1, 0, 2)
        if f"{block}.attn_{part}_norm.weight" in self._weights:
            heads = self._rms_norm(heads, f"{block}.attn_{part}_norm")
        return self._rotate(heads.transpose(1, 0, 2))

    def _rotate(self, heads: Array) -> Array:
        """Turn each pair of values by its position times the frequency of the pair."""
        half = self._head_size // 2
        frequencies = self._parameter("rope.freq_base") ** (-np.arange(half) / half)
        frequencies /= self._weights.get("rope_freqs.weight", self._parameter("rope.scaling.factor", default=1))
        angles = np.arange(heads.shape[1])[:, None] * frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        rotated = np.empty_like(heads)
        adjacent = self._architecture == "llama"
        first, second = (slice(0, None, 2), slice(1, None, 2)) if adjacent else (slice(0, half), slice(half, None))
        rotated[..., first] = heads[..., first] * cos - heads[..., second] * sin
        rotated[..., second] = heads[..., second] * cos + heads[..., first] * sin
        return rotated

    def _feed_forward(self, block: str, x: Array) -> Array:
        gate, up, down = (self._weights[f"{block}.ffn_{part}.weight"] for part in ("gate", "up", "down"))
        gated = x @ gate.T
        gated /= 1 + np.exp(-gated)
        widened: Array = gated * (x @ up.T)
        return widened @ down.T

    def _rms_norm(self, x: Array, name: str) -> Array:
        normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self._eps)
        return normed * self._weights[f"{name}.weight"]

    def _parameter(self, name: str, default: float | None = None) -> float:
        field = self._metadata.get(f"{self._architecture}.{name}")
        if field is None and default is not None:
            return default
        return float(self._metadata[f"{self._architecture}.{name}"].contents())


def _as_stored(tensor: gguf.ReaderTensor) -> Array:
    weights: Array = gguf.dequantize(tensor.data, tensor.tensor_type)
    return weights if weights.ndim == 1 else weights.astype(np.float16).astype(np.float32)


def _softmax(scores: Array) -> Array:
    exponentials: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares
