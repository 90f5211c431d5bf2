"""Running sums over rows of probabilities, chunk by chunk: only the chunk that is hit is summed token by token."""

import numpy as np
from numpy.typing import NDArray

CHUNK = 256

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Probs = NDArray[np.float32]


def padded_size(vocab_size: int) -> int:
    """Return the length of a row that is filled up to whole chunks."""
    return -(-vocab_size // CHUNK) * CHUNK


def chunk_sums(probs: Probs, chunk: int = CHUNK) -> Floats:
    """Return the sum of each chunk of rows of whole chunks, [num_rows, num_chunks]."""
    # einsum adds short stretches three times as fast as sum does, and each row as if it were alone
    sums: Floats = np.einsum("ijk->ij", probs.reshape(len(probs), -1, chunk)).astype(np.float64)
    return sums


def search(probs: Probs, sums: Floats, target: Floats) -> Ids:
    """Find in each row the first entry at which the running sum exceeds target: the chunk first, then the entry.

    `sums` are those of the chunks, [num_rows, num_chunks], however long a chunk is. Rounding may put target behind the
    last entry that has any mass: then it is that one.
    """
    rows = np.arange(len(probs))
    running = sums.cumsum(1)
    chunk = _first_above(running, target)
    before = np.where(chunk > 0, running[rows, chunk - 1], 0.0)
    chunks = probs.reshape(*sums.shape, -1)
    inner = chunks[rows, chunk].astype(np.float64).cumsum(1)
    index: Ids = chunk * chunks.shape[2] + _first_above(inner, target - before)
    return index


def _first_above(sums: Floats, target: Floats) -> Ids:
    index: Ids = (sums <= target[:, None]).sum(1)
    last: Ids = (sums < sums[:, -1:]).sum(1)
    return np.minimum(index, last)
