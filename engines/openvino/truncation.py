"""What top_k, top_p and min_p leave of rows of probabilities.

Each keeps the first so many tokens in order of falling probability (ties: the lower id first), so a row is cut at one
token. To find it

- the most likely tokens are sorted, where they hold all that is kept: so it is in most chats;
- where top_p keeps thousands, a sample of the row tells about where the cut is, and only the tokens around it are
  sorted: the mass below them is summed, which makes it exact;
- the whole row is sorted where both fail.

Which way a row goes depends on that row alone, so that its neighbours do not change its token.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engines.openvino.cdf import CHUNK, Floats, Ids, Probs, chunk_sums, padded_size, search
from engines.openvino.draws import DrawParams

NUM_LIKELY = 1024
"""How many of a row's most likely tokens are sorted at first."""

SAMPLE_STRIDE = 16
"""One of so many tokens is looked at to guess where a row is cut."""

MARGIN = 32
"""How many tokens of the sample on each side of the guess surround the cut."""

SLACK = 1e-6
"""By how much, relatively, a nucleus may miss top_p: of four equal tokens 0.5 keeps two, however sums are rounded."""

SORTED_CHUNK = 64
"""Tokens around a cut are summed chunk by chunk, too."""

INFINITE = np.uint64(0x7F800000_00000000)
"""A key behind those of all probabilities, see `_rising_keys`."""

Mask = NDArray[np.bool_]


class Truncation:
    """Cuts groups of rows short. Not thread-safe: all that is large is written into the same arrays."""

    def __init__(self, num_rows: int, vocab_size: int) -> None:
        shape = (num_rows, padded_size(vocab_size))
        self._scratch = np.zeros(shape, np.float32)
        self._masks = np.zeros((2, *shape), bool)

    def apply(self, probs: Probs, params: DrawParams, restore: Callable[[slice], None]) -> None:
        """Set to 0 what the parameters leave out of probabilities [num_rows, padded size], the largest being 1.

        `restore` writes rows anew that a wrong guess has spoilt.
        """
        totals = chunk_sums(probs).sum(1)
        cuts = Cuts.guess(probs, params, totals)
        is_done = np.zeros(len(probs), bool)
        for rows in _runs(cuts.is_flat):
            chosen = probs[rows], params.take(rows), totals[rows]
            if cuts.is_flat[rows.start]:
                is_done[rows] = self._cut_around(*chosen, cuts.low[rows], cuts.high[rows])
            else:
                is_done[rows] = self._cut_sorted(*chosen, min(NUM_LIKELY, probs.shape[1]))
        for row in np.flatnonzero(~is_done):
            rows = slice(row, row + 1)
            if cuts.is_flat[row]:
                restore(rows)
            self._cut_sorted(probs[rows], params.take(rows), totals[rows], probs.shape[1])

    def _cut_around(self, probs: Probs, params: DrawParams, totals: Floats, low: Probs, high: Probs) -> Mask:
        """Cut rows between two probabilities, and tell which rows have their cut there; the others are spoilt."""
        above, band = self._masks[:, : len(probs)]
        np.multiply(probs, np.greater_equal(probs, low[:, None], out=above), out=probs)
        excess = chunk_sums(probs).sum(1) - params.top_p * totals * (1 - SLACK)
        np.logical_and(np.less(probs, high[:, None], out=band), above, out=band)
        keys, counts = _rising_keys(probs, band)
        mass = (keys >> np.uint64(32)).astype(np.uint32).view(np.float32)
        num_dropped = search(mass, chunk_sums(mass, SORTED_CHUNK), excess)
        is_dropped = np.arange(keys.shape[1]) < num_dropped[:, None]
        probs.reshape(-1)[_places_of(keys[is_dropped])] = 0.0
        found: Mask = (excess >= 0) & (num_dropped < counts)
        return found

    def _cut_sorted(self, probs: Probs, params: DrawParams, totals: Floats, width: int) -> Mask:
        """Cut rows after sorting their `width` most likely tokens, and tell for which rows these were enough."""
        ranked = self._most_likely(probs, width)
        suffices: Mask = _suffices(ranked, params, totals) | (width == probs.shape[1])
        for rows in _runs(suffices):
            if suffices[rows.start]:
                num_kept = _num_kept(ranked[rows], params.take(rows), totals[rows])
                self._keep_first(probs[rows], ranked[rows], num_kept)
        return suffices

    def _most_likely(self, probs: Probs, width: int) -> Probs:
        """Return the `width` largest probabilities of each row, falling; a view that the next call overwrites."""
        ranked = self._scratch[: len(probs)]
        np.negative(probs, out=ranked)
        if width < probs.shape[1]:
            ranked.partition(width, axis=1)
        ranked = ranked[:, :width]
        ranked.sort(axis=1)
        return np.negative(ranked, out=ranked)

    def _keep_first(self, probs: Probs, ranked: Probs, num_kept: Ids) -> None:
        """Set all but the `num_kept` most likely tokens of each row to 0, among equals those with the higher ids."""
        mask = self._masks[0, : len(probs)]
        cutoff = ranked[np.arange(len(ranked)), num_kept - 1]
        num_equal = num_kept - (ranked > cutoff[:, None]).sum(1)
        np.multiply(probs, np.greater_equal(probs, cutoff[:, None], out=mask), out=probs)
        places, rows, rank, _ = _ranks(np.equal(probs, cutoff[:, None], out=mask))
        probs.reshape(-1)[places[rank >= num_equal[rows]]] = 0.0


@dataclass(frozen=True, slots=True)
class Cuts:
    """Between which probabilities rows that keep much are probably cut; arrays [num_rows]."""

    is_flat: Mask
    low: Probs
    high: Probs

    @classmethod
    def guess(cls, probs: Probs, params: DrawParams, totals: Floats) -> "Cuts":
        """Look at a sample of each row that top_p alone cuts: what is dropped has a known mass, of many small parts."""
        if not params.is_nucleus.any():
            nothing = np.zeros(len(probs), np.float32)
            return cls(np.zeros(len(probs), bool), nothing, nothing)
        chunks = probs.reshape(len(probs), -1, CHUNK)
        sample = np.sort(chunks[:, :, : CHUNK // SAMPLE_STRIDE].reshape(len(probs), -1), axis=1)
        sums = chunk_sums(sample, chunks.shape[1])
        cut = search(sample, sums, (1.0 - params.top_p) * totals / SAMPLE_STRIDE)
        rows, size = np.arange(len(probs)), sample.shape[1]
        low, high = sample[rows, np.maximum(cut - MARGIN, 0)], sample[rows, np.minimum(cut + MARGIN, size - 1)]
        return cls(params.is_nucleus & ((size - cut) * SAMPLE_STRIDE > NUM_LIKELY), low, high)


def _runs(flags: Mask) -> Iterator[slice]:
    """Yield stretches of rows that have the same flag."""
    ends = (*(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags))
    for start, end in pairwise((0, *ends)):
        yield slice(start, end)


def _ranks(mask: Mask) -> tuple[Ids, Ids, Ids, Ids]:
    """Return each place that is set in the flattened mask, its row, which of its row it is, and how many rows have."""
    num_rows, width = mask.shape
    places = _places_set(mask)
    starts = places.searchsorted(np.arange(num_rows + 1) * width)
    counts = np.diff(starts)
    rows = np.repeat(np.arange(num_rows), counts)
    return places, rows, np.arange(len(rows)) - starts[rows], counts


def _places_set(mask: Mask) -> Ids:
    """Do what np.flatnonzero does for rows of whole chunks, faster where little is set: eight places at a time."""
    words = mask.reshape(-1).view(np.uint64)
    some = np.flatnonzero(words != 0)
    places = np.flatnonzero(words[some].view(np.bool_))
    found: Ids = some[places >> 3] * 8 + (places & 7)
    return found


def _rising_keys(probs: Probs, mask: Mask) -> tuple[NDArray[np.uint64], Ids]:
    """Return the masked tokens of each row in the order in which they are dropped, and how many there are.

    A key has the bits of the probability, which rise with it, above the complement of the token's place in the
    flattened rows: of equals the higher id goes first. At least one INFINITE key is behind those of each row.
    """
    places, rows, rank, counts = _ranks(mask)
    bits = probs.reshape(-1)[places].view(np.uint32).astype(np.uint64)
    width = (int(counts.max()) // SORTED_CHUNK + 1) * SORTED_CHUNK
    keys = np.full((len(mask), width), INFINITE)
    keys.reshape(-1)[rows * width + rank] = (bits << np.uint64(32)) | ~places.astype(np.uint32)
    keys.sort(axis=1)
    return keys, counts


def _places_of(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return ~keys.astype(np.uint32)


def _suffices(ranked: Probs, params: DrawParams, totals: Floats) -> Mask:
    """Tell for each row whether everything it keeps is in `ranked`."""
    by_count = (params.top_k > 0) & (params.top_k <= ranked.shape[1])
    by_mass = (params.top_k == 0) & (params.top_p < 1.0) & (chunk_sums(ranked).sum(1) > params.top_p * totals)
    # top_p is a share of what top_k left: without all of the top k that mass is not known
    by_ratio = (params.min_p > ranked[:, -1]) & ((params.top_k == 0) | (params.top_p >= 1.0))
    return np.asarray(by_count | by_mass | by_ratio)


def _num_kept(ranked: Probs, params: DrawParams, totals: Floats) -> Ids:
    """Count what stays of falling probabilities: top_k, then top_p of the mass that is left, then min_p."""
    width = ranked.shape[1]
    top_k = np.where(params.top_k > 0, np.minimum(params.top_k, width), width)
    mass = totals
    if (params.top_k > 0).any():
        within_k = np.where(np.arange(width) < top_k[:, None], ranked, 0.0).sum(1, dtype=np.float64)
        mass = np.where(params.top_k > 0, within_k, totals)
    target = params.top_p * mass * (1 - SLACK)
    nucleus = np.where(params.top_p < 1.0, search(ranked, chunk_sums(ranked), target) + 1, width)
    num_kept = np.minimum(top_k, nucleus)
    if params.min_p.any():
        num_kept = np.minimum(num_kept, (ranked >= (params.min_p * ranked[:, 0])[:, None]).sum(1))
    return np.maximum(num_kept, 1)
