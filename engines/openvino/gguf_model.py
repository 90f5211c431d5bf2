"""A GGUF file as the OpenVINO builder sees it: checked metadata and exact weights.

The graph converter of openvino-genai knows three architectures and skips in silence what it does not know (rope
scaling, experts), so everything outside the list is refused here. Source of the names: the GGUF specification and the
tensor names of `gguf.constants`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import gguf
import numpy as np
from numpy.typing import NDArray

from engines.building import BuildError
from engines.model_files import ModelFilesError, gguf_parts
from engines.openvino.gguf_header import check_header

T = TypeVar("T", str, int, float, bool)

_ROPE_FACTORS = "rope_freqs.weight"
_FIXED_TENSORS = ("token_embd.weight", "output_norm.weight")
_BLOCK_TENSORS = tuple(
    f"{part}.weight"
    for part in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
)
# architecture -> the tensors of each block, beside those all have
_MORE_BLOCK_TENSORS: Mapping[str, tuple[str, ...]] = {
    "llama": (),
    "qwen2": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "qwen3": ("attn_q_norm.weight", "attn_k_norm.weight"),
}
_OPTIONAL_TENSORS: Mapping[str, tuple[str, ...]] = {
    "llama": ("output.weight", _ROPE_FACTORS),
    "qwen2": ("output.weight",),
    "qwen3": ("output.weight",),
}

# parameters that change what the network computes when they are there and not 0; no graph here follows them
_CHANGING_PARAMETERS = ("expert_count", "attention.scale", "embedding_scale", "residual_scale", "logit_scale")


class GgufError(BuildError):
    """A GGUF file is damaged or holds something the OpenVINO builder cannot convert exactly."""

    code = "gguf_unsupported"


@dataclass(frozen=True, slots=True)
class GgufModel:
    """An opened GGUF file of a known architecture; the weights stay on disk until they are used.

    `metadata` is that of the first part of a split file, `tensors` are those of all parts.
    """

    path: Path
    architecture: str
    metadata: Mapping[str, gguf.ReaderField]
    tensors: tuple[gguf.ReaderTensor, ...]

    @classmethod
    def open(cls, path: Path) -> "GgufModel":
        """Open and check a GGUF file, or a split one by the path of any part.

        Raises GgufError if it is damaged or not convertible exactly.
        """
        try:
            parts = gguf_parts(path)
        except ModelFilesError as exc:
            raise GgufError(str(exc)) from exc
        readers = [_read(part) for part in parts]
        tensors = tuple(tensor for reader in readers for tensor in reader.tensors)
        model = cls(parts[0], _architecture(readers[0]), readers[0].fields, tensors)
        _refuse_other_parts(model, len(parts))
        _refuse_unknown(model)
        return model

    def text(self, key: str) -> str | None:
        """Return a string of the metadata, None where the file has none."""
        return self._scalar(key, str)

    def integer(self, key: str) -> int | None:
        """Return an integer of the metadata, None where the file has none."""
        return self._scalar(key, int)

    def number(self, key: str) -> float | None:
        """Return a number of the metadata, None where the file has none."""
        return self._scalar(key, float)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean of the metadata."""
        value = self._scalar(key, bool)
        return default if value is None else value

    def strings(self, key: str) -> list[str]:
        """Return a list of strings of the metadata, empty where the file has none."""
        return self._list(key, str)

    def numbers(self, key: str) -> list[float]:
        """Return a list of numbers of the metadata, empty where the file has none."""
        return self._list(key, float)

    def parameter(self, name: str) -> int:
        """Return a size of the architecture, such as `block_count`. Raises GgufError if it is not there or below 1."""
        value = self.integer(f"{self.architecture}.{name}")
        if value is None or value < 1:
            raise GgufError(f"{self.path} lacks a positive {self.architecture}.{name}")
        return value

    def tokens(self) -> list[str]:
        """List the tokens of the vocabulary, by id."""
        return self.strings("tokenizer.ggml.tokens")

    def per_token(self, name: str) -> list[float]:
        """List the types or scores of the tokens, by id. Raises GgufError unless there is one for each."""
        values, num_tokens = self.numbers(f"tokenizer.ggml.{name}"), len(self.tokens())
        if len(values) != num_tokens:
            raise GgufError(f"{self.path} has {len(values)} x tokenizer.ggml.{name} for {num_tokens} tokens")
        return values

    def token_id(self, role: str) -> int | None:
        """Return the id of the token with this role, such as `eos`, None where the file names none."""
        token_id = self.integer(f"tokenizer.ggml.{role}_token_id")
        if token_id is not None and not 0 <= token_id < len(self.tokens()):
            raise GgufError(f"{self.path} names token {token_id} as {role}, which is not in its vocabulary")
        return token_id

    @property
    def vocab_size(self) -> int:
        """Rows of the token embedding: the width of the logits."""
        return int(self._tensor("token_embd.weight").shape[1])

    @property
    def head_size(self) -> int:
        """Values per attention head."""
        return int(self._tensor("blk.0.attn_q.weight").shape[1]) // self.parameter("attention.head_count")

    @property
    def linear_rope_factor(self) -> float:
        """What linear rope scaling divides every frequency by; 1 without scaling."""
        prefix = f"{self.architecture}.rope"
        is_linear = self.text(f"{prefix}.scaling.type") == "linear"
        factor = self.number(f"{prefix}.scaling.factor" if is_linear else f"{prefix}.scale_linear")  # the old name
        return factor or 1.0

    def rope_factors(self) -> NDArray[np.float32]:
        """Return what each rope frequency is divided by, [head_size / 2] or [1] where the file has no factors."""
        factors = [tensor for tensor in self.tensors if tensor.name == _ROPE_FACTORS]
        return dequantise(factors[0]) if factors else np.ones(1, np.float32)

    def weights(self) -> list[gguf.ReaderTensor]:
        """List the tensors that are weights of the graph."""
        return [tensor for tensor in self.tensors if tensor.name != _ROPE_FACTORS]

    def f16_bytes(self) -> int:
        """Size of the matrices in float16."""
        return 2 * sum(int(tensor.n_elements) for tensor in self.weights() if len(tensor.shape) > 1)

    def vectors(self) -> dict[str, NDArray[np.float32]]:
        """Return the norms and biases by name, each [size]."""
        return {tensor.name: dequantise(tensor) for tensor in self.weights() if len(tensor.shape) == 1}

    def _scalar(self, key: str, kind: type[T]) -> T | None:
        value = self._contents(key)
        return None if value is None else self._checked(key, value, kind)

    def _list(self, key: str, kind: type[T]) -> list[T]:
        values = self._contents(key)
        if values is None:
            return []
        if not isinstance(values, list):
            raise GgufError(f"{self.path} has {key} = {values!r} instead of a list")
        return [self._checked(key, value, kind) for value in values]

    def _contents(self, key: str) -> object:
        field = self.metadata.get(key)
        try:
            return None if field is None else field.contents()
        except ValueError as exc:
            raise GgufError(f"{self.path} is damaged: {key} is not text") from exc

    def _checked(self, key: str, value: object, kind: type[T]) -> T:
        if kind is float and isinstance(value, int):
            return kind(value)
        if not isinstance(value, kind):
            raise GgufError(f"{self.path} has {key} = {value!r} instead of a value of type {kind.__name__}")
        return value

    def _tensor(self, name: str) -> gguf.ReaderTensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)


def dequantise(tensor: gguf.ReaderTensor) -> NDArray[np.float32]:
    """Return the weights of a tensor, [rows, columns] or [size]. Raises GgufError on an unknown quantisation."""
    try:
        weights: NDArray[np.float32] = gguf.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as exc:
        raise GgufError(f"tensor {tensor.name} is stored as {tensor.tensor_type.name}: {exc}") from exc
    return weights


def _read(part: Path) -> gguf.GGUFReader:
    try:
        check_header(part)
        return gguf.GGUFReader(part)
    except OSError as exc:
        raise GgufError(f"{part} cannot be read: {exc.strerror}") from exc
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as exc:
        raise GgufError(f"{part} is not a whole GGUF file: {exc}") from exc


def _architecture(reader: gguf.GGUFReader) -> str:
    field = reader.get_field("general.architecture")
    return str(field.contents()) if field else "(none)"


def _refuse_other_parts(model: GgufModel, num_parts: int) -> None:
    stated = model.integer("split.count") or 1
    if stated != num_parts:
        raise GgufError(
            f"{model.path} is one of {stated} parts, which are found by their names: name-00001-of-{stated:05}.gguf"
        )
    num_tensors = model.integer("split.tensors.count")
    if num_tensors is not None and num_tensors != len(model.tensors):
        raise GgufError(f"the parts of {model.path} have {len(model.tensors)} tensors instead of {num_tensors}")
    if len({tensor.name for tensor in model.tensors}) != len(model.tensors):
        raise GgufError(f"{model.path} has a tensor twice")


def _refuse_unknown(model: GgufModel) -> None:
    if model.architecture not in _MORE_BLOCK_TENSORS:
        known = ", ".join(_MORE_BLOCK_TENSORS)
        raise GgufError(f"{model.path} has the architecture {model.architecture!r}; known architectures: {known}")
    _refuse_other_tensors(model)
    _refuse_other_arithmetic(model)
    _refuse_other_rope(model)


def _refuse_other_tensors(model: GgufModel) -> None:
    """Refuse a missing tensor, and one more than the graph uses: it would be left out and the numbers be wrong."""
    per_block = (*_BLOCK_TENSORS, *_MORE_BLOCK_TENSORS[model.architecture])
    blocks = range(model.parameter("block_count"))
    needed = {*_FIXED_TENSORS, *(f"blk.{block}.{name}" for block in blocks for name in per_block)}
    present = {tensor.name for tensor in model.tensors}
    if missing := sorted(needed - present):
        raise GgufError(f"{model.path} lacks the tensors {', '.join(missing[:3])}")
    if unknown := sorted(present - needed - {*_OPTIONAL_TENSORS[model.architecture]}):
        raise GgufError(
            f"{model.path} has tensors the {model.architecture} graph does not use: {', '.join(unknown[:3])}"
        )


def _refuse_other_arithmetic(model: GgufModel) -> None:
    for name in _CHANGING_PARAMETERS:
        if value := model.number(f"{model.architecture}.{name}"):
            raise GgufError(f"{model.path} sets {model.architecture}.{name} = {value:g}, which is not converted")
    num_heads = model.parameter("attention.head_count")
    num_kv_heads = model.integer(f"{model.architecture}.attention.head_count_kv") or num_heads
    if num_heads % num_kv_heads:
        raise GgufError(f"{model.path} has {num_heads} query heads for {num_kv_heads} key heads; they do not divide")
    context_length = model.parameter("context_length")
    window = model.integer(f"{model.architecture}.attention.sliding_window") or context_length
    if window < context_length:
        raise GgufError(f"{model.path} attends to {window} of {context_length} tokens; windows are not converted")


def _refuse_other_rope(model: GgufModel) -> None:
    prefix = f"{model.architecture}.rope"
    scaling = model.text(f"{prefix}.scaling.type") or "none"
    if scaling not in ("none", "linear"):
        raise GgufError(f"{model.path} has the rope scaling {scaling!r}; known scalings: none, linear")
    rotated = model.integer(f"{prefix}.dimension_count") or model.head_size
    if rotated != model.head_size:
        raise GgufError(f"{model.path} rotates {rotated} of {model.head_size} values of a head; only all are converted")
    if model.rope_factors().size not in (1, model.head_size // 2):
        raise GgufError(f"{model.path} has {model.rope_factors().size} rope factors for {model.head_size} values")
