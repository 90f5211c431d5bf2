"""Gives an IR back the vectors that openvino-genai rounds to float16 when it saves a graph.

The matrices are float16 on purpose. Norms and biases lose up to 5e-4 of their value, and so do the rope frequencies,
which turns the rotation of a far token by a radian and more: right over a hundred tokens, wrong over thousands. A
rounded constant is recognised by its value: it equals the rounding of what the GGUF file holds.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from numpy.typing import NDArray

from engines.openvino.gguf_model import GgufError, GgufModel

Vector = NDArray[np.float32]


def restore_vectors(rounded_ir: Path, exact_ir: Path, model: GgufModel) -> None:
    """Copy the IR with norms, biases and rope frequencies in float32.

    Raises GgufError if one of them is not in the graph: then the graph is not the one the model asks for.
    """
    graph = ov.Core().read_model(rounded_ir)
    plain, wanted = plain_rope_frequencies(model), rope_frequencies(model)
    exact = {_rounded(vector): vector for vector in model.vectors().values()}
    sizes = {plain.size, *(vector.size for vector in exact.values())}
    missing, has_rope = set(exact), False
    for constant in _real_constants(graph, sizes):
        values = constant.data.astype(np.float32).ravel()
        if values.size == plain.size and np.allclose(values, plain, rtol=1e-3, atol=1e-6):
            _replace(constant, wanted)
            has_rope = True
        elif (key := _rounded(values)) in exact:
            _replace(constant, exact[key])
            missing.discard(key)
    if missing or not has_rope:
        raise GgufError(f"the graph of {model.path} lacks {len(missing)} of its vectors or its rope frequencies")
    ov.save_model(graph, exact_ir, compress_to_fp16=False)


def plain_rope_frequencies(model: GgufModel) -> Vector:
    """Return the unscaled frequency of each rotated pair, [head_size / 2], in radians per token."""
    base = model.number(f"{model.architecture}.rope.freq_base") or 10_000.0
    half = model.head_size // 2
    return np.power(base, -np.arange(half) / half).astype(np.float32)


def rope_frequencies(model: GgufModel) -> Vector:
    """Return the frequencies the model was trained with: Llama 3.1 divides each by a factor of its own."""
    return plain_rope_frequencies(model) / (model.rope_factors() * np.float32(model.linear_rope_factor))


def _real_constants(graph: ov.Model, sizes: set[int]) -> Iterator[ov.Node]:
    for node in graph.get_ordered_ops():
        is_real = node.get_type_name() == "Constant" and node.get_element_type().is_real()
        if is_real and int(np.prod(node.shape)) in sizes:
            yield node


def _replace(constant: ov.Node, values: Vector) -> None:
    """Put float32 values where the constant was used; a float16 one was converted to float32 first."""
    exact = ops.constant(values.reshape(constant.shape))
    for user in constant.output(0).get_target_inputs():
        node = user.get_node()
        if node.get_type_name() == "Convert":
            node.output(0).replace(exact.output(0))
        else:
            user.replace_source_output(exact.output(0))


def _rounded(vector: Vector) -> bytes:
    with np.errstate(over="ignore"):
        return vector.astype(np.float16).tobytes()
