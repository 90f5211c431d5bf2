"""How far a model's answers move when its weights are stored in fewer bits, measured on a text that is always the same.

Both graphs run in float32 and without paging, so that nothing but the weights differs.
"""

from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engines.folder import PrecisionLoss
from engines.openvino.decoder import read_decoder, text_positions

_NUM_LIKELIEST = 5
_MAX_TOKENS = 512
_F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

TEXT = """\
The lighthouse keeper wrote one line a day for thirty-one years. Most of them were about the weather, for that was what
he was paid to notice: wind from the north-west, sea rough, visibility poor after four o'clock. But between the storms
one finds other sentences. In March 1894 he noted that a fishing boat had brought him oranges. In June he had learned to
repair clocks, and by autumn every clock in the village stood on his kitchen table, each of them right.

Question: A train leaves at 9:40 and arrives at 12:15. How long does the journey take?
Answer: From 9:40 to 11:40 are two hours, and from 11:40 to 12:15 are 35 minutes, so it takes 2 hours and 35 minutes.

def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2

Die Bibliothek war im Winter das wärmste Haus der Stadt, und so lasen dort auch Leute, die sonst nie
ein Buch aufschlugen.
La bibliothèque restait ouverte jusqu'à minuit; on y parlait bas, on y dormait parfois.
{"name": "Ada", "languages": ["English", "French"], "born": 1815, "address": {"city": "London", "zip": null}}

To make a simple bread, mix 500 g of flour, 350 ml of water, 10 g of salt and a little yeast. Knead the dough for
ten minutes, let it rest in a warm place until it has doubled in size, shape it, and bake it at 230 degrees for half an
hour. It is done when it sounds hollow if you knock on the bottom.
"""


def measure_loss(exact_ir: Path, lowered_ir: Path, tokenizer: Tokenizer) -> PrecisionLoss:
    """Compare two graphs of one model on the first tokens of TEXT."""
    token_ids = tokenizer.encode(TEXT, add_special_tokens=False).ids[:_MAX_TOKENS]
    exact = _logprobs(exact_ir, token_ids)
    likeliest = np.argpartition(exact, -_NUM_LIKELIEST, axis=-1)[:, -_NUM_LIKELIEST:]
    top1, listed = exact.argmax(axis=-1), np.take_along_axis(exact, likeliest, axis=-1)
    del exact  # two of them would be a gigabyte for a large vocabulary
    lowered = _logprobs(lowered_ir, token_ids)
    distances = np.abs(np.take_along_axis(lowered, likeliest, axis=-1) - listed)
    agreement = float(np.mean(lowered.argmax(axis=-1) == top1))
    return PrecisionLoss(round(agreement, 4), round(float(distances.mean()), 4), len(token_ids))


def _logprobs(ir: Path, token_ids: list[int]) -> NDArray[np.float32]:
    """Return the log-probabilities after each token, [num_tokens, vocab_size]."""
    compiled = ov.Core().compile_model(read_decoder(ir), "CPU", _F32)
    num_tokens = len(token_ids)
    shapes = {port.any_name: port.get_partial_shape() for port in compiled.inputs}
    position_ids = np.arange(num_tokens, dtype=np.int64)[None]
    inputs = {
        "input_ids": np.array([token_ids], np.int64),
        "attention_mask": np.ones((1, num_tokens), np.int64),
        "position_ids": text_positions(position_ids, shapes.get("position_ids", ov.PartialShape([-1, -1]))),
        "beam_idx": np.zeros(1, np.int32),
    }
    result = compiled.create_infer_request().infer({name: inputs[name] for name in shapes})
    logits: NDArray[np.float32] = result["logits"][0]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logprobs: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logprobs
