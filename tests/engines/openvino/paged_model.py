"""The graph of an engine folder under the executor's runner, without scheduler and sampler."""

import numpy as np
from numpy.typing import NDArray

from engines.config import EngineConfig
from engines.contract import GenerationRequest, SamplingParams
from engines.folder import EngineFolder
from engines.openvino.runner import ModelRunner
from engines.openvino.sequence import ScheduledBatch, ScheduledSequence, Sequence


def paged_logits(engine: EngineFolder, token_ids: list[int], *cuts: int) -> NDArray[np.float32]:
    """Logits after each token [num_tokens, vocab_size], in f32, computed in steps that end at the cuts."""
    runner = ModelRunner(engine.model_path, EngineConfig(kv_cache_gib=0.1, precision="f32"))
    seq = Sequence(GenerationRequest("0", tuple(token_ids), SamplingParams(), 1), [], 0, runner.layout.block_size)
    seq.block_table = list(range(-(-len(token_ids) // runner.layout.block_size)))
    steps = zip((0, *cuts), (*cuts, len(token_ids)), strict=True)
    items = [ScheduledSequence(seq, start, end - start, end - start) for start, end in steps]
    return np.concatenate([runner.forward(ScheduledBatch([item])).copy() for item in items])
