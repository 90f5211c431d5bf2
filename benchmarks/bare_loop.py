"""The least loop over OpenVINO's paged model: greedy, closed loop, no text, no HTTP, no prefix reuse.

What any executor on this engine can be measured against. It shares no code with `engines/`, on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from openvino._offline_transformations import paged_attention_transformation

BLOCK_SIZE = 32


@dataclass(slots=True)
class Row:
    """A sequence in the loop."""

    token_ids: list[int]
    blocks: list[int]
    past: int = 0
    num_generated: int = 0


@dataclass(slots=True)
class Inputs:
    """One step's model inputs, gathered row by row."""

    input_ids: list[int] = field(default_factory=list)
    position_ids: list[int] = field(default_factory=list)
    past_lens: list[int] = field(default_factory=list)
    subsequence_begins: list[int] = field(default_factory=lambda: [0])
    block_indices: list[int] = field(default_factory=list)
    block_indices_begins: list[int] = field(default_factory=lambda: [0])
    sampled_rows: list[int] = field(default_factory=list)
    max_context_len: int = 0

    def add(self, row: Row, count: int) -> None:
        """Put the next `count` tokens of a row into the step."""
        end = row.past + count
        self.input_ids += row.token_ids[row.past : end]
        self.position_ids += range(row.past, end)
        self.past_lens.append(row.past)
        self.subsequence_begins.append(len(self.input_ids))
        self.block_indices += row.blocks[: -(-end // BLOCK_SIZE)]
        self.block_indices_begins.append(len(self.block_indices))
        self.max_context_len = max(self.max_context_len, end)
        row.past = end


class BareLoop:
    """A compiled paged model and nothing else."""

    def __init__(self, model_path: Path, num_blocks: int) -> None:
        core = ov.Core()
        model = core.read_model(model_path)
        paged_attention_transformation(model)
        head = model.get_results()[0].input_value(0).get_node()
        while head.get_type_name() != "MatMul":
            head = head.input_value(0).get_node()
        rows = ops.parameter([-1], np.int64, name="sampled_rows")
        rows.output(0).get_tensor().set_names({"sampled_rows"})
        hidden = ops.gather(head.input_value(0), rows, ops.constant(np.int64(0)))
        head.input(0).replace_source_output(hidden.output(0))
        model.add_parameters([rows])
        model.validate_nodes_and_infer_types()
        compiled = core.compile_model(model, "CPU")
        self._request = compiled.create_infer_request()
        self._num_blocks = num_blocks
        for port in compiled.inputs:
            if port.any_name.startswith(("key_cache.", "value_cache.")):
                shape = [num_blocks, *(dim.get_length() for dim in list(port.partial_shape)[1:])]
                self._request.set_tensor(port.any_name, ov.Tensor(port.element_type, ov.Shape(shape)))

    def run(self, prompts: Sequence[Sequence[int]], output: int, concurrency: int, budget: int) -> int:
        """Generate `output` greedy tokens for each prompt, `concurrency` at a time; return how many there were."""
        waiting = [list(prompt) for prompt in reversed(prompts)]
        free = list(range(self._num_blocks))
        running: list[Row] = []
        while waiting or running:
            while waiting and len(running) < concurrency:
                prompt = waiting.pop()
                count = -(-(len(prompt) + output) // BLOCK_SIZE)
                running.append(Row(prompt, [free.pop() for _ in range(count)]))
            for row in self._step(running, budget):
                if row.num_generated == output:
                    free += row.blocks
                    running.remove(row)
        return len(prompts) * output

    def _step(self, running: list[Row], budget: int) -> list[Row]:
        inputs, sampled = Inputs(), []
        for row in sorted(running, key=lambda row: len(row.token_ids) - row.past):
            count = min(len(row.token_ids) - row.past, budget)
            if count:
                budget -= count
                inputs.add(row, count)
                if row.past == len(row.token_ids):
                    inputs.sampled_rows.append(len(inputs.input_ids) - 1)
                    sampled.append(row)
        for row, token_id in zip(sampled, self._infer(inputs), strict=True):
            row.token_ids.append(token_id)
            row.num_generated += 1
        return sampled

    def _infer(self, inputs: Inputs) -> list[int]:
        for name in Inputs.__slots__:
            wide = name in ("input_ids", "position_ids", "sampled_rows")
            value = getattr(inputs, name) if name != "sampled_rows" else inputs.sampled_rows or [0]
            self._request.set_tensor(name, ov.Tensor(np.asarray(value, np.int64 if wide else np.int32)))
        self._request.infer()
        logits = self._request.get_output_tensor(0).data
        token_ids: list[int] = logits.reshape(-1, logits.shape[-1]).argmax(1).tolist()
        return token_ids[: len(inputs.sampled_rows)]
