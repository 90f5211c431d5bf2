"""Logits [num_rows, vocab_size] to token ids, vectorised over the batch.

A row of a greedy sequence is an argmax. Every other row is drawn by inverse CDF in order of token ids from one uniform
number, a pure function of (seed, position), out of what `truncation` leaves of it.

All this is one thread's work: its many short calls hold the GIL so often that a second thread gains nothing.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Rows

import numpy as np
from numpy.typing import NDArray

from engines.openvino.cdf import Ids, Probs, chunk_sums, padded_size, search
from engines.openvino.draws import DrawParams
from engines.openvino.sequence import Sequence
from engines.openvino.truncation import Truncation

ROWS_AT_ONCE = 16
"""Rows are drawn in groups: so many that little time goes to calls, so few that they take little memory."""


class Sampler:
    """Draws the next token of each row. Not thread-safe: all that is large is written into the same arrays."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._probs = np.zeros((ROWS_AT_ONCE, padded_size(vocab_size)), np.float32)
        self._truncation = Truncation(ROWS_AT_ONCE, vocab_size)

    def sample(self, logits: NDArray[np.float32], seqs: Rows[Sequence]) -> list[int]:
        """Return one token id for each row of logits [num_rows, vocab_size], row i being of seqs[i]."""
        drawn = [row for row, seq in enumerate(seqs) if not seq.is_greedy]
        token_ids = np.empty(len(seqs), np.int64) if len(drawn) == len(seqs) else logits.argmax(1)
        if drawn:
            token_ids[drawn] = self.draw(logits, np.array(drawn), DrawParams.of([seqs[row] for row in drawn]))
        result: list[int] = token_ids.tolist()
        return result

    def draw(self, logits: NDArray[np.float32], rows: Ids, params: DrawParams) -> Ids:
        """Draw a token id for each of these rows of logits [num_rows, vocab_size] at temperatures above 0."""
        token_ids = np.empty(len(rows), np.int64)
        for group in _groups_of_a_kind(params):
            token_ids[group] = self._draw_group(logits, rows[group], params.take(group))
        return token_ids

    def _draw_group(self, logits: NDArray[np.float32], rows: Ids, params: DrawParams) -> Ids:
        probs = self._probs[: len(rows)]

        def fill(some: slice) -> None:
            self._fill(probs[some], logits, rows[some], params.temperature[some])

        fill(slice(None))
        if params.is_truncated.any():
            self._truncation.apply(probs, params, fill)
        sums = chunk_sums(probs)
        return search(probs, sums, params.uniform * sums.sum(1))

    def _fill(self, probs: Probs, logits: NDArray[np.float32], rows: Ids, temperature: NDArray[np.float32]) -> None:
        """Write probabilities relative to the most likely token, [num_rows, vocab_size padded with 0]."""
        inside = probs[:, : self._vocab_size]
        is_stretch = rows[-1] - rows[0] == len(rows) - 1  # rows rise: then a view will do
        own = logits[rows[0] : rows[-1] + 1] if is_stretch else logits[rows]
        np.subtract(own, own.max(1, keepdims=True), out=inside)
        if (temperature != 1.0).any():
            inside /= temperature[:, None]
        np.exp(inside, out=inside)


def _groups_of_a_kind(params: DrawParams) -> Iterator[Ids]:
    """Yield groups of at most ROWS_AT_ONCE rows, those that are cut short apart from those that are not."""
    for kind in (~params.is_truncated, params.is_truncated):
        alike = np.flatnonzero(kind)
        for start in range(0, len(alike), ROWS_AT_ONCE):
            yield alike[start : start + ROWS_AT_ONCE]
