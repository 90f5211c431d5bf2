"""The paged model: a `ScheduledBatch` in, a row of logits per sampled position out.

OpenVINO's private `paged_attention_transformation` turns a stateful decoder into one over a block table, with these
inputs: `input_ids` [tokens], `position_ids` [tokens] or [axes, tokens], `past_lens` [seqs], `subsequence_begins`
[seqs + 1], `block_indices`, `block_indices_begins` [seqs + 1], `max_context_len` [], and per layer `key_cache.N`,
`value_cache.N` [blocks, kv_heads, block_size, head_dim]. A gather put before the LM head computes logits only for the
rows that are sampled.

A step of one token in all would be computed by matrix-vector kernels, whose bf16 results differ from those of every
larger step. Such a step gets a second, meaningless sequence, so that a sequence alone equals itself in any batch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from numpy.typing import NDArray
from openvino._offline_transformations import paged_attention_transformation

from engines.config import EngineConfig
from engines.errors import MemoryShortageError
from engines.openvino import memory
from engines.openvino.decoder import read_decoder, text_positions
from engines.openvino.sequence import ScheduledBatch

IntArray = NDArray[Any]
CACHE_INPUTS = ("key_cache.", "value_cache.")
INPUT_DTYPES = {
    "input_ids": np.int64,
    "position_ids": np.int64,
    "past_lens": np.int32,
    "subsequence_begins": np.int32,
    "block_indices": np.int32,
    "block_indices_begins": np.int32,
    "sampled_rows": np.int64,
    "max_context_len": np.int32,
}


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape of the paged KV cache."""

    block_size: int
    bytes_per_block: int
    """Over all layers, keys and values."""


class ModelRunner:
    """A compiled paged model with its KV cache. Not thread-safe: the engine thread owns it."""

    def __init__(self, model_path: Path, config: EngineConfig) -> None:
        model = read_decoder(model_path)
        paged_attention_transformation(model)
        _gather_before_head(model)
        compiled = ov.Core().compile_model(model, "CPU", _properties(config))
        self._request = compiled.create_infer_request()
        self._inputs: dict[str, IntArray] = {}  # views into the tensors that are set
        self._position_shape = compiled.input("position_ids").get_partial_shape()
        caches = [port for port in compiled.inputs if port.any_name.startswith(CACHE_INPUTS)]
        self.layout = _layout(caches)
        self.precision: str = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.vocab_size: int = compiled.outputs[0].partial_shape[-1].get_length()
        self.num_blocks = memory.cache_bytes(config) // self.layout.bytes_per_block
        if not self.num_blocks:
            raise MemoryShortageError(f"the KV cache is too small: a block takes {self.layout.bytes_per_block} bytes")
        memory.promise(self, self.num_blocks * self.layout.bytes_per_block)
        self._padding_block = self.num_blocks  # one more than the pool knows of
        for port in caches:
            shape = [self.num_blocks + 1, *_inner_shape(port)]
            self._request.set_tensor(port.any_name, ov.Tensor(port.element_type, ov.Shape(shape)))

    def close(self) -> None:
        """Give the memory of the cache back. The runner is of no use afterwards."""
        memory.give_back(self)
        self._request = None

    def forward(self, batch: ScheduledBatch) -> NDArray[np.float32]:
        """Run one step and return logits [num_rows, vocab_size], rows in the order of the batch's items.

        The array is a view into the model's output, valid (and free to be written) until the next call.
        """
        inputs = StepInputs()
        for item in batch.items:
            inputs.add(item.seq.token_ids, item.start, item.num_tokens, item.seq.block_table, item.num_rows)
        if len(inputs.input_ids) == 1:
            inputs.add([0], 0, 1, [self._padding_block], 0)
        num_rows = len(inputs.sampled_rows)
        for name, array in inputs.arrays(self._position_shape).items():
            self._set_input(name, array)
        self._request.infer(share_outputs=True)
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits.reshape(-1, self.vocab_size)[:num_rows]

    def _set_input(self, name: str, array: IntArray) -> None:
        """Write into the tensor of the last step where the shape is the same: in most decodes nothing else is set."""
        if name in self._inputs and self._inputs[name].shape == array.shape:
            self._inputs[name][...] = array
        else:
            tensor = ov.Tensor(array)
            self._request.set_tensor(name, tensor)
            self._inputs[name] = tensor.data


class StepInputs:
    """The model's inputs for one step, gathered sequence by sequence; attributes have OpenVINO's names."""

    def __init__(self) -> None:
        self.input_ids: list[int] = []
        self.position_ids: list[int] = []
        self.past_lens: list[int] = []
        self.subsequence_begins = [0]
        self.block_indices: list[int] = []
        self.block_indices_begins = [0]
        self.sampled_rows: list[int] = []
        self.max_context_len = 0

    def add(self, token_ids: list[int], start: int, num_tokens: int, blocks: list[int], num_rows: int) -> None:
        """Put tokens [start, start + num_tokens) of a sequence into the step, the last `num_rows` to get logits."""
        end = start + num_tokens
        self.input_ids += token_ids[start:end]
        self.position_ids += range(start, end)
        self.past_lens.append(start)
        num_tokens_so_far = len(self.input_ids)
        self.subsequence_begins.append(num_tokens_so_far)
        self.block_indices += blocks
        self.block_indices_begins.append(len(self.block_indices))
        self.sampled_rows += range(num_tokens_so_far - num_rows, num_tokens_so_far)
        self.max_context_len = max(self.max_context_len, end)

    def arrays(self, position_shape: ov.PartialShape) -> dict[str, IntArray]:
        """Return the inputs by name."""
        self.sampled_rows = self.sampled_rows or [0]  # the graph wants at least one row
        arrays = {name: np.asarray(value, INPUT_DTYPES[name]) for name, value in vars(self).items()}
        arrays["position_ids"] = text_positions(arrays["position_ids"], position_shape)
        return arrays


def _properties(config: EngineConfig) -> dict[str, str | int]:
    properties: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY"}
    if config.precision != "auto":
        properties["INFERENCE_PRECISION_HINT"] = config.precision
    if config.precision == "f32":
        properties["KV_CACHE_PRECISION"] = "f32"
    if config.kv_cache_precision != "auto":
        properties["KV_CACHE_PRECISION"] = config.kv_cache_precision
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
    # a quantised cache holds scales as more rows of the keys, but as more columns of the values
    return KVLayout(block_size=min(_inner_shape(port)[1] for port in ports), bytes_per_block=block_bytes)
