"""Logits [num_rows, vocab_size] to token ids, vectorised over the batch.

A row of a greedy sequence is an argmax. Every other row is drawn by inverse CDF in order of token ids from one uniform
number, a pure function of (seed, position). top_k, top_p and min_p each keep the first so many tokens in order of
falling probability (ties: the lower id first), so a row is cut by one number. To find it, only the most likely tokens
are sorted, more of them where the first ones do not suffice.
"""

import os
from collections.abc import Iterator
from collections.abc import Sequence as Rows
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engines.openvino.sequence import Sequence

CHUNK = 256
"""Probabilities are summed chunk by chunk; only the chunk that is hit is summed token by token."""

WIDTHS = (1024, 16384)
"""How many of a row's most likely tokens are sorted, one after the other until they hold all that is kept; then all.
Chats keep few; a flat row keeps thousands."""

SLACK = 1e-6
"""By how much, relatively, a nucleus may miss top_p: of four equal tokens 0.5 keeps two, however sums are rounded."""

ROWS_AT_ONCE = 4
"""Rows are drawn in groups that stay in the CPU's cache."""

MAX_THREADS = 8

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DrawParams:
    """How each of a set of rows is drawn; arrays [num_rows]."""

    temperature: NDArray[np.float32]
    top_k: Ids
    top_p: Floats
    min_p: Floats
    uniform: Floats

    @classmethod
    def of(cls, seqs: Rows[Sequence]) -> "DrawParams":
        """Collect the parameters of the next token of each sequence."""
        params = [seq.sampling for seq in seqs]
        seeds = np.array([seq.seed for seq in seqs], np.uint64)
        positions = np.array([len(seq.token_ids) for seq in seqs], np.uint64)
        return cls(
            np.array([p.temperature for p in params], np.float32),
            np.array([p.top_k for p in params], np.int64),
            np.array([p.top_p for p in params], np.float64),
            np.array([p.min_p for p in params], np.float64),
            uniform(seeds, positions),
        )

    @property
    def is_truncated(self) -> NDArray[np.bool_]:
        """Which rows do not draw from the whole vocabulary."""
        return np.asarray((self.top_k > 0) | (self.top_p < 1.0) | (self.min_p > 0.0))

    def take(self, rows: Ids | slice) -> "DrawParams":
        """Return the parameters of some rows."""
        return DrawParams(
            self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows]
        )


class Sampler:
    """Draws the next token of each row. Groups of rows are shared out to threads: numpy works without the GIL."""

    def __init__(self, vocab_size: int, num_threads: int | None = None) -> None:
        num_threads = num_threads or min(os.cpu_count() or 1, MAX_THREADS)
        self._drawers = [GroupDrawer(vocab_size) for _ in range(num_threads)]
        self._pool = ThreadPoolExecutor(num_threads, "sampler")

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False)

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
        groups = list(_groups_of_a_kind(params))

        def draw_share(drawer: GroupDrawer, share: list[Ids]) -> None:
            for group in share:
                token_ids[group] = drawer.draw(logits, rows[group], params.take(group))

        shares = [groups[first :: len(self._drawers)] for first in range(len(self._drawers))]
        others = [
            self._pool.submit(draw_share, drawer, share)
            for drawer, share in zip(self._drawers[1:], shares[1:], strict=True)
            if share
        ]
        draw_share(self._drawers[0], shares[0])
        for other in others:
            other.result()
        return token_ids


def _groups_of_a_kind(params: DrawParams) -> Iterator[Ids]:
    """Yield small groups of rows, those that are cut short apart from those that are not."""
    for kind in (~params.is_truncated, params.is_truncated):
        alike = np.flatnonzero(kind)
        for start in range(0, len(alike), ROWS_AT_ONCE):
            yield alike[start : start + ROWS_AT_ONCE]


class GroupDrawer:
    """Draws the rows of one group at a time. Not thread-safe: all that is large is written into the same arrays."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        shape = (ROWS_AT_ONCE, -(-vocab_size // CHUNK) * CHUNK)
        self._probs = np.zeros(shape, np.float32)
        self._ranked = np.zeros(shape, np.float32)
        self._mask = np.zeros(shape, bool)

    def draw(self, logits: NDArray[np.float32], rows: Ids, params: DrawParams) -> Ids:
        """Draw a token id for each of at most ROWS_AT_ONCE rows of logits."""
        probs = self._relative_probs(logits, rows, params.temperature)
        if params.is_truncated.any():
            self._truncate(probs, params)
        sums = _chunk_sums(probs)
        return _search(probs, sums, params.uniform * sums.sum(1))

    def _relative_probs(
        self, logits: NDArray[np.float32], rows: Ids, temperature: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return probabilities relative to the most likely token, [num_rows, vocab_size padded with 0]."""
        probs = self._probs[: len(rows)]
        inside = probs[:, : self._vocab_size]
        for target, row in zip(inside, rows, strict=True):
            np.subtract(logits[row], logits[row].max(), out=target)
        inside /= temperature[:, None]
        np.exp(inside, out=inside)
        return probs

    def _truncate(self, probs: NDArray[np.float32], params: DrawParams) -> None:
        """Set to 0 what top_k, top_p and min_p leave out."""
        totals = _chunk_sums(probs).sum(1)
        for width in (*(width for width in WIDTHS if width < probs.shape[1]), probs.shape[1]):
            ranked = self._most_likely(probs, width)
            if _suffices(ranked, params, totals).all():
                break
        self._keep_first(probs, ranked, _num_kept(ranked, params, totals))

    def _most_likely(self, probs: NDArray[np.float32], width: int) -> NDArray[np.float32]:
        """Return the `width` largest probabilities of each row, falling; a view that the next call overwrites."""
        ranked = self._ranked[: len(probs)]
        np.negative(probs, out=ranked)
        if width < probs.shape[1]:
            ranked.partition(width, axis=1)
        ranked = ranked[:, :width]
        ranked.sort(axis=1)
        return np.negative(ranked, out=ranked)

    def _keep_first(self, probs: NDArray[np.float32], ranked: NDArray[np.float32], num_kept: Ids) -> None:
        """Set all but the `num_kept` most likely tokens of each row to 0, among equals those with the higher ids."""
        mask = self._mask[: len(probs)]
        cutoff = ranked[np.arange(len(ranked)), num_kept - 1]
        num_equal = num_kept - (ranked > cutoff[:, None]).sum(1)
        np.multiply(probs, np.greater_equal(probs, cutoff[:, None], out=mask), out=probs)
        rows, columns = np.divmod(np.flatnonzero(np.equal(probs, cutoff[:, None], out=mask)), probs.shape[1])
        counts = np.bincount(rows, minlength=len(probs))
        rank = np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
        dropped = rank >= num_equal[rows]
        probs[rows[dropped], columns[dropped]] = 0.0


def uniform(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> Floats:
    """Return one number in [0, 1) for each (seed, position).

    Source: the SplitMix64 generator (Steele, Lea and Flood 2014), whose state at step n is seed + n * golden gamma.
    """
    state = _mix(seeds) + (positions + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    numbers: Floats = (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _chunk_sums(probs: NDArray[np.float32]) -> Floats:
    sums: Floats = probs.reshape(len(probs), -1, CHUNK).sum(2).astype(np.float64)
    return sums


def _search(probs: NDArray[np.float32], chunk_sums: Floats, target: Floats) -> Ids:
    """Find in each row the first entry at which the running sum exceeds target: the chunk first, then the entry.

    Rounding may put target behind the last entry that has any mass: then it is that one.
    """
    rows = np.arange(len(probs))
    running = chunk_sums.cumsum(1)
    chunk = _first_above(running, target)
    before = np.where(chunk > 0, running[rows, chunk - 1], 0.0)
    inner = probs.reshape(len(probs), -1, CHUNK)[rows, chunk].astype(np.float64).cumsum(1)
    return chunk * CHUNK + _first_above(inner, target - before)


def _first_above(sums: Floats, target: Floats) -> Ids:
    index: Ids = (sums <= target[:, None]).sum(1)
    last: Ids = (sums < sums[:, -1:]).sum(1)
    return np.minimum(index, last)


def _suffices(ranked: NDArray[np.float32], params: DrawParams, totals: Floats) -> NDArray[np.bool_]:
    """Tell for each row whether everything it keeps is in `ranked`."""
    by_count = (params.top_k > 0) & (params.top_k <= ranked.shape[1])
    by_mass = (params.top_k == 0) & (params.top_p < 1.0) & (_chunk_sums(ranked).sum(1) > params.top_p * totals)
    # top_p is a share of what top_k left: without all of the top k that mass is not known
    by_ratio = (params.min_p > ranked[:, -1]) & ((params.top_k == 0) | (params.top_p >= 1.0))
    return np.asarray(by_count | by_mass | by_ratio)


def _num_kept(ranked: NDArray[np.float32], params: DrawParams, totals: Floats) -> Ids:
    """Count what stays of falling probabilities: top_k, then top_p of the mass that is left, then min_p."""
    width = ranked.shape[1]
    top_k = np.where(params.top_k > 0, np.minimum(params.top_k, width), width)
    mass = totals
    if (params.top_k > 0).any():
        within_k = np.where(np.arange(width) < top_k[:, None], ranked, 0.0).sum(1, dtype=np.float64)
        mass = np.where(params.top_k > 0, within_k, totals)
    nucleus = np.where(
        params.top_p < 1.0, _search(ranked, _chunk_sums(ranked), params.top_p * mass * (1 - SLACK)) + 1, width
    )
    num_kept = np.minimum(top_k, nucleus)
    if params.min_p.any():
        num_kept = np.minimum(num_kept, (ranked >= (params.min_p * ranked[:, 0])[:, None]).sum(1))
    return np.maximum(num_kept, 1)
