"""The paged model: a `ScheduledBatch` in, a row of logits per sampled position out.

OpenVINO's private `paged_attention_transformation` turns a stateful decoder into one over a block table, with these
inputs: `input_ids` or `inputs_embeds` [tokens, ...], `position_ids` [tokens], `past_lens` [seqs],
`subsequence_begins` [seqs + 1], `block_indices`, `block_indices_begins` [seqs + 1], `max_context_len` [], and per
layer `key_cache.N`, `value_cache.N` [blocks, kv_heads, block_size, head_dim]. A gather put before the LM head computes
logits only for the rows that are sampled.

A step of one token in all would be computed by matrix-vector kernels, whose bf16 results differ from those of every
larger step. Such a step gets a second, meaningless sequence, so that a sequence alone equals itself in any batch.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from numpy.typing import NDArray
from openvino._offline_transformations import paged_attention_transformation

from engines.config import EngineConfig
from engines.openvino.sequence import ScheduledBatch

CACHE_INPUTS = ("key_cache.", "value_cache.")


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape of the paged KV cache."""

    block_size: int
    bytes_per_block: int
    """Over all layers, keys and values."""


class ModelRunner:
    """A compiled paged model with its KV cache. Not thread-safe: the engine thread owns it."""

    def __init__(self, model_path: Path, config: EngineConfig) -> None:
        core = ov.Core()
        model = core.read_model(model_path)
        paged_attention_transformation(model)
        _gather_before_head(model)
        compiled = core.compile_model(model, "CPU", _properties(config))
        self._request = compiled.create_infer_request()
        self._cache_ports = [port for port in compiled.inputs if port.any_name.startswith(CACHE_INPUTS)]
        self.layout = _layout(self._cache_ports)
        self.precision: str = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.vocab_size: int = compiled.outputs[0].partial_shape[-1].get_length()
        self.num_blocks = int(config.kv_cache_gib * 2**30) // self.layout.bytes_per_block
        self._padding_block = self.num_blocks  # one more than the pool knows of
        for port in self._cache_ports:
            shape = [self.num_blocks + 1, *_inner_shape(port)]
            self._request.set_tensor(port.any_name, ov.Tensor(port.element_type, ov.Shape(shape)))

    def forward(self, batch: ScheduledBatch) -> NDArray[np.float32]:
        """Run one step and return logits [num_rows, vocab_size], rows in the order of the batch's items.

        The array is a view into the model's output, valid (and free to be written) until the next call.
        """
        token_ids: list[int] = []
        positions: list[int] = []
        past_lens: list[int] = []
        begins, block_begins = [0], [0]
        blocks: list[int] = []
        rows: list[int] = []
        max_context = 0
        for item in batch.items:
            end = item.start + item.num_tokens
            token_ids += item.seq.token_ids[item.start : end]
            positions += range(item.start, end)
            past_lens.append(item.start)
            begins.append(len(token_ids))
            blocks += item.seq.block_table
            block_begins.append(len(blocks))
            rows += range(len(token_ids) - item.num_rows, len(token_ids))
            max_context = max(max_context, end)
        if len(token_ids) == 1:
            token_ids.append(0)
            positions.append(0)
            past_lens.append(0)
            begins.append(2)
            blocks.append(self._padding_block)
            block_begins.append(len(blocks))
        self._set("input_ids", token_ids, np.int64)
        self._set("position_ids", positions, np.int64)
        self._set("past_lens", past_lens, np.int32)
        self._set("subsequence_begins", begins, np.int32)
        self._set("block_indices", blocks, np.int32)
        self._set("block_indices_begins", block_begins, np.int32)
        self._set("max_context_len", max_context, np.int32)
        self._set("sampled_rows", rows or [0], np.int64)  # the graph wants at least one row
        self._request.infer(share_outputs=True)
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits.reshape(-1, self.vocab_size)[: len(rows)]

    def _set(self, name: str, value: list[int] | int, dtype: type[np.int32 | np.int64]) -> None:
        self._request.set_tensor(name, ov.Tensor(np.asarray(value, dtype)))


def _properties(config: EngineConfig) -> dict[str, str | int]:
    properties: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY"}
    if config.precision != "auto":
        properties["INFERENCE_PRECISION_HINT"] = config.precision
    if config.precision == "f32":
        properties["KV_CACHE_PRECISION"] = "f32"
    if config.num_threads is not None:
        properties["INFERENCE_NUM_THREADS"] = config.num_threads
    return properties


def _gather_before_head(model: ov.Model) -> None:
    """Add the input `sampled_rows` [rows] int64 and compute the last MatMul for those rows only."""
    head = model.get_results()[0].input_value(0).get_node()
    while head.get_type_name() != "MatMul":
        head = head.input_value(0).get_node()
    rows = ops.parameter([-1], np.int64, name="sampled_rows")
    rows.output(0).get_tensor().set_names({"sampled_rows"})
    gathered = ops.gather(head.input_value(0), rows, ops.constant(np.int64(0)))
    head.input(0).replace_source_output(gathered.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _inner_shape(port: ov.ConstOutput) -> list[int]:
    return [dim.get_length() for dim in list(port.partial_shape)[1:]]


def _layout(ports: list[ov.ConstOutput]) -> KVLayout:
    block_bytes = sum(int(np.prod(_inner_shape(port))) * port.element_type.size for port in ports)
    return KVLayout(block_size=_inner_shape(ports[0])[1], bytes_per_block=block_bytes)
