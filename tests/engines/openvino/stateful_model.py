"""The graph of an engine folder without the executor around it."""

from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from engines.model_files import decoder_irs
from engines.openvino.decoder import read_decoder, text_positions


class StatefulModel:
    """The IR of an engine folder run as it is, without paging, all in f32. One sequence at a time."""

    def __init__(self, engine: Path) -> None:
        options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        ir = decoder_irs([file.name for file in engine.iterdir()])[0]
        compiled = ov.Core().compile_model(read_decoder(engine / ir), "CPU", options)
        self._position_shape = compiled.input("position_ids").get_partial_shape()
        self._request = compiled.create_infer_request()

    def logits(self, token_ids: list[int]) -> NDArray[np.float32]:
        """Run a new sequence as one prefill; [num_tokens, vocab_size]."""
        self._request.reset_state()
        return self.more_logits(token_ids, past=0)

    def more_logits(self, token_ids: list[int], past: int) -> NDArray[np.float32]:
        """Run the next tokens of the sequence that has `past` tokens so far; [num_tokens, vocab_size]."""
        total = past + len(token_ids)
        inputs = {
            "input_ids": np.array([token_ids], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": text_positions(np.arange(past, total, dtype=np.int64)[None], self._position_shape),
            "beam_idx": np.zeros(1, np.int32),
        }
        logits: NDArray[np.float32] = self._request.infer(inputs)["logits"][0].copy()
        return logits
