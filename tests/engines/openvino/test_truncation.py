"""Rows of which thousands of tokens are kept, against the plain sampler."""

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.contract import SamplingParams
from engines.openvino.cdf import CHUNK, padded_size
from engines.openvino.draws import DrawParams
from engines.openvino.truncation import SAMPLE_STRIDE, Truncation
from tests.engines.openvino import reference_sampler

VOCAB_SIZE = 20_000
RNG = np.random.default_rng(7)


def flat_logits(num_rows: int) -> NDArray[np.float32]:
    return RNG.standard_normal((num_rows, VOCAB_SIZE)).astype(np.float32)


def misleading_logits() -> NDArray[np.float32]:
    """Of each chunk the tokens that are looked at are unlike the others, so that every guess is wrong."""
    logits = flat_logits(2)
    looked_at = np.arange(VOCAB_SIZE) % CHUNK < CHUNK // SAMPLE_STRIDE
    logits[0, looked_at] += 3
    logits[1, looked_at] -= 3
    return logits


def tied_logits() -> NDArray[np.float32]:
    return np.round(flat_logits(3) * 4) / np.float32(4)


def probs_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    probs = np.zeros((len(logits), padded_size(VOCAB_SIZE)), np.float32)
    probs[:, :VOCAB_SIZE] = np.exp(logits - logits.max(1, keepdims=True))
    return probs


def nucleus(num_rows: int, top_p: float) -> DrawParams:
    ones = np.ones(num_rows)
    return DrawParams(ones.astype(np.float32), ones.astype(np.int64) * 0, ones * top_p, ones * 0, ones * 0)


def truncated(probs: NDArray[np.float32], params: DrawParams) -> NDArray[np.float32]:
    left = probs.copy()

    def restore(rows: slice) -> None:
        left[rows] = probs[rows]

    Truncation(len(probs), VOCAB_SIZE).apply(left, params, restore)
    return left


@pytest.mark.parametrize("top_p", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("logits", [flat_logits(4), misleading_logits(), tied_logits(), np.zeros((1, VOCAB_SIZE))])
def test_a_nucleus_of_thousands_is_the_plain_samplers(logits: NDArray[np.float32], top_p: float) -> None:
    num_rows = len(logits)
    probs = truncated(probs_of(logits), nucleus(num_rows, top_p))
    for row in range(num_rows):
        expected = reference_sampler.kept_probs(logits[row].astype(np.float32), SamplingParams(top_p=top_p)) > 0
        kept = probs[row, :VOCAB_SIZE] > 0
        assert (kept != expected).sum() <= 1  # float32 sums: a token at the very border
        assert not probs[row, VOCAB_SIZE:].any()


def test_a_row_is_cut_as_if_it_were_alone() -> None:
    logits = np.concatenate((flat_logits(3), misleading_logits(), tied_logits(), flat_logits(2) * 8))
    probs, params = probs_of(logits), nucleus(len(logits), 0.95)
    together = truncated(probs, params)
    for row in range(len(logits)):
        rows = slice(row, row + 1)
        assert np.array_equal(truncated(probs[rows], params.take(rows))[0], together[row])
