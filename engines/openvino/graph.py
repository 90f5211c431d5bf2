"""What importers do with an IR: check that the executor can run it, see its precision, store matrices in float16."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from openvino._offline_transformations import paged_attention_transformation

from engines.building import BuildError
from engines.openvino.decoder import read_decoder

Node: TypeAlias = ov.Node
_KNOWN_INPUTS = frozenset(("input_ids", "attention_mask", "position_ids", "beam_idx"))
_PRECISIONS = {"f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "int8", "u8": "int8", "nf4": "int4"}


def read_graph(ir: Path) -> ov.Model:
    """Read an IR. Raises BuildError if it is damaged."""
    return _read(ir, ov.Core().read_model)


def _read(ir: Path, read: Callable[[Path], ov.Model]) -> ov.Model:
    try:
        return read(ir)
    except RuntimeError as exc:
        raise BuildError(f"{ir} cannot be read: {_reason(exc)}") from exc


def check_servable(ir: Path) -> int:
    """Return the width of the logits of a text decoder. Raises BuildError if the executor could not run it."""
    graph = _read(ir, read_decoder)
    inputs, outputs = {port.any_name for port in graph.inputs}, {port.any_name for port in graph.outputs}
    if "input_ids" not in inputs or not inputs <= _KNOWN_INPUTS or "logits" not in outputs:
        raise BuildError(f"{ir} is not a text decoder: it turns {', '.join(inputs)} into {', '.join(outputs)}")
    if not graph.get_sinks():
        raise BuildError(f"{ir} keeps no state; export the model with a stateful KV cache (with past)")
    width = graph.output("logits").get_partial_shape()[-1]
    try:
        paged_attention_transformation(graph)
    except RuntimeError as exc:
        raise BuildError(f"{ir} cannot be turned into paged attention: {_reason(exc)}") from exc
    if width.is_dynamic:
        raise BuildError(f"{ir} does not state how many logits it gives")
    return int(width.get_length())


def weights_precision(graph: ov.Model) -> str:
    """Name the precision that most of the weights have: f32, f16, bf16, int8 or int4."""
    sizes = Counter[str]()
    for constant in _matrices(graph):
        sizes[_precision(constant)] += int(np.prod(constant.shape))
    if not sizes:
        raise BuildError("the graph has no weights")
    return sizes.most_common(1)[0][0]


def compress_matrices(source_ir: Path, target_ir: Path) -> None:
    """Copy an IR with its matrices in float16; vectors (norms, biases, rope frequencies) keep all their digits.

    Raises BuildError for weights that float16 cannot hold.
    """
    graph = read_graph(source_ir)
    for constant in list(_matrices(graph)):
        if constant.get_element_type() == ov.Type.f32:
            _store_in_float16(constant)
    save_graph(graph, target_ir)


def keep_kv_exact(graph: ov.Model) -> None:
    """Ask for keys and values as they are computed; for quantised weights the runtime would quantise them too."""
    graph.set_rt_info("f16", ["runtime_options", "KV_CACHE_PRECISION"])


def save_graph(graph: ov.Model, ir: Path) -> None:
    """Write an IR as it is. Raises BuildError, for a full disk too."""
    try:
        ov.save_model(graph, ir, compress_to_fp16=False)
    except RuntimeError as exc:
        raise BuildError(f"openvino could not write {ir}: {_reason(exc)}") from exc


def _matrices(graph: ov.Model) -> Iterator[Node]:
    for node in graph.get_ordered_ops():
        if node.get_type_name() == "Constant" and sum(size > 1 for size in node.shape) > 1:
            yield node


def _precision(constant: Node) -> str:
    name = constant.get_element_type().get_type_name()
    return _PRECISIONS.get(name) or ("int4" if name in ("i4", "u4") else name)


def _store_in_float16(constant: Node) -> None:
    with np.errstate(over="ignore"):  # the check below names the weights
        halves = constant.data.astype(np.float16)
    if not np.isfinite(halves).all():
        raise BuildError(f"the weights {constant.get_friendly_name()} are too large for float16")
    users = constant.output(0).get_target_inputs()
    widened = ops.convert(ops.constant(halves), "f32")
    for user in users:
        user.replace_source_output(widened.output(0))


def _reason(exc: RuntimeError) -> str:
    """Return the last line of openvino's message; those before it say where in its source it was raised."""
    return next((line.strip() for line in reversed(str(exc).splitlines()) if line.strip()), "no message")
