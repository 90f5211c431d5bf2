"""Log-probabilities of the raw distribution: before temperature, penalties and masks."""

from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from engines.contract import MIN_LOGPROB, TokenLogprob

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]


class RawLogprobs:
    """The log-probabilities of some rows of logits, kept before the logits are edited."""

    def __init__(self, logits: Logits, rows: Items[int], num_alternatives: Items[int]) -> None:
        """Take rows of logits [num_rows, vocab_size], each with its number of alternatives to report."""
        self._num_alternatives = num_alternatives
        self._values = logits[rows].astype(np.float32)  # a copy
        highest = self._values.max(1, keepdims=True)
        self._values -= highest
        self._values -= np.log(np.exp(self._values).sum(1, keepdims=True))
        self._top = _top_token_ids(self._values, max(num_alternatives, default=0))

    def of(self, token_ids: Items[int]) -> list[TokenLogprob]:
        """Return what to report when these tokens follow, one for each row."""
        reports = []
        for row, (token_id, count) in enumerate(zip(token_ids, self._num_alternatives, strict=True)):
            values = self._values[row]
            top = self._top[row, :count].tolist()
            alternatives = tuple((other, _finite(values[other])) for other in top)
            reports.append(TokenLogprob(token_id, _finite(values[token_id]), alternatives))
        return reports


def _top_token_ids(values: Logits, count: int) -> Ids:
    """Return the ids of the `count` largest values of each row, falling; among equals the lower id first."""
    if count == 0:
        return np.empty((len(values), 0), np.int64)
    count = min(count, values.shape[1])
    # Equal values at the border: the whole border is taken, so that the choice among equals does not depend on
    # how the partition went.
    border = np.partition(values, -count, axis=1)[:, -count]
    top = np.empty((len(values), count), np.int64)
    for row, line in enumerate(values):
        candidates = np.flatnonzero(line >= border[row])
        top[row] = candidates[np.argsort(-line[candidates], kind="stable")[:count]]
    return top


def _finite(value: np.float32) -> float:
    return max(float(value), MIN_LOGPROB)
