"""Logits [num_rows, vocab_size] to token ids, vectorised over the batch.

A row of a greedy sequence is an argmax. Every other row is drawn by inverse CDF in order of token ids from one uniform
number, a pure function of (seed, position). A row that top_k, top_p or min_p cuts short is never sorted whole: the
tokens above a probability threshold are gathered first, and the threshold falls until they hold all that can be kept.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engines.openvino.sequence import Sequence

CHUNK = 256
"""Probabilities are summed chunk by chunk; only the chunk that is hit is summed token by token."""

THRESHOLDS = (1e-2, 1e-3, 1e-5, 0.0)
"""Relative to the most likely token: how far down candidates are gathered, one after the other until it suffices."""

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

    def take(self, rows: Ids) -> "DrawParams":
        """Return the parameters of some rows."""
        return DrawParams(
            self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows]
        )


class Sampler:
    """Draws the next token of each row."""

    def sample(self, logits: NDArray[np.float32], seqs: Rows[Sequence]) -> list[int]:
        """Return one token id for each row of logits [num_rows, vocab_size], row i being of seqs[i].

        Logits may be overwritten.
        """
        mask_stop_tokens(logits, seqs)
        drawn = np.array([row for row, seq in enumerate(seqs) if not seq.is_greedy], np.int64)
        if not len(drawn):
            return logits.argmax(1).tolist()  # type: ignore[no-any-return]
        token_ids = np.empty(len(seqs), np.int64)
        if len(drawn) < len(seqs):
            greedy = np.array([row for row, seq in enumerate(seqs) if seq.is_greedy], np.int64)
            token_ids[greedy] = logits[greedy].argmax(1)
            logits = logits[drawn]
        token_ids[drawn] = draw(logits, DrawParams.of([seqs[row] for row in drawn]))
        return token_ids.tolist()


def mask_stop_tokens(logits: NDArray[np.float32], seqs: Rows[Sequence]) -> None:
    """Make it impossible to stop before min_tokens."""
    for row, seq in enumerate(seqs):
        if seq.num_generated_tokens < seq.sampling.min_tokens:
            logits[row, list(seq.request.stop_token_ids)] = -np.inf


def uniform(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> Floats:
    """Return one number in [0, 1) for each (seed, position).

    Source: the SplitMix64 generator (Steele, Lea and Flood 2014), whose state at step n is seed + n * golden gamma.
    """
    state = _mix(seeds) + (positions + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    numbers: Floats = np.asarray(_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def draw(logits: NDArray[np.float32], params: DrawParams) -> Ids:
    """Draw a token id for each row of logits [num_rows, vocab_size] at temperatures above 0."""
    probs = _relative_probs(logits, params.temperature)
    cut = params.is_truncated
    if not cut.any():
        return _draw_whole(probs, params.uniform)
    if cut.all():
        return _draw_truncated(probs, params)
    token_ids = np.empty(len(logits), np.int64)
    whole, some = np.flatnonzero(~cut), np.flatnonzero(cut)
    token_ids[whole] = _draw_whole(probs[whole], params.uniform[whole])
    token_ids[some] = _draw_truncated(probs[some], params.take(some))
    return token_ids


def _relative_probs(logits: NDArray[np.float32], temperature: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return probabilities relative to the most likely token, [num_rows, vocab_size padded to a multiple of CHUNK]."""
    num_rows, vocab_size = logits.shape
    probs = np.zeros((num_rows, -(-vocab_size // CHUNK) * CHUNK), np.float32)
    inside = probs[:, :vocab_size]
    np.subtract(logits, logits.max(1, keepdims=True), out=inside)
    if (temperature != 1.0).any():
        inside /= temperature[:, None]
    np.exp(inside, out=inside)
    return probs


def _chunk_sums(probs: NDArray[np.float32]) -> Floats:
    return probs.reshape(len(probs), -1, CHUNK).sum(2).astype(np.float64)


def _draw_whole(probs: NDArray[np.float32], numbers: Floats) -> Ids:
    """Inverse CDF over the whole vocabulary: find the chunk first, then the token in it."""
    rows = np.arange(len(probs))
    ends = _chunk_sums(probs).cumsum(1)
    chunk, target = _locate(ends, numbers * ends[:, -1])
    inner = probs.reshape(len(probs), -1, CHUNK)[rows, chunk].astype(np.float64).cumsum(1)
    token, _ = _locate(inner, target)
    return chunk * CHUNK + token


def _locate(ends: Floats, target: Floats) -> tuple[Ids, Floats]:
    """Find in each row of running sums the first end above target; return it and target less what is before.

    Rounding may put target behind the last end: then it is the last entry that has any mass.
    """
    index = (ends <= target[:, None]).sum(1)
    last = (ends < ends[:, -1:]).sum(1)
    index = np.minimum(index, last)
    before = np.where(index > 0, ends[np.arange(len(ends)), index - 1], 0.0)
    return index, target - before


def _draw_truncated(probs: NDArray[np.float32], params: DrawParams) -> Ids:
    """Draw rows that keep only their most likely tokens."""
    totals = _chunk_sums(probs).sum(1)
    token_ids = np.empty(len(probs), np.int64)
    left = np.arange(len(probs))
    for threshold in THRESHOLDS:
        candidates = _Candidates.above(threshold, probs[left])
        done = candidates.suffice(params.take(left), totals[left], threshold)
        if done.any():
            rows = np.flatnonzero(done)
            token_ids[left[rows]] = candidates.take(rows).draw(params.take(left[rows]), totals[left[rows]])
        left = left[~done]
        if not len(left):
            break
    return token_ids


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The tokens above a threshold in order of their ids, rows padded with probability 0."""

    probs: Floats  # [num_rows, max_candidates]
    token_ids: Ids  # [num_rows, max_candidates]
    counts: Ids  # [num_rows]

    @classmethod
    def above(cls, threshold: float, probs: NDArray[np.float32]) -> "_Candidates":
        flat = np.flatnonzero(probs > threshold)
        rows, columns = np.divmod(flat, probs.shape[1])
        counts = np.bincount(rows, minlength=len(probs))
        slots = np.arange(len(flat)) - np.repeat(counts.cumsum() - counts, counts)
        padded = np.zeros((len(probs), int(counts.max())))
        token_ids = np.zeros(padded.shape, np.int64)
        padded[rows, slots] = probs.ravel()[flat]
        token_ids[rows, slots] = columns
        return cls(padded, token_ids, counts)

    def take(self, rows: Ids) -> "_Candidates":
        return _Candidates(self.probs[rows], self.token_ids[rows], self.counts[rows])

    def suffice(self, params: DrawParams, totals: Floats, threshold: float) -> NDArray[np.bool_]:
        """Which rows hold every token that could be kept."""
        by_count = (params.top_k > 0) & (self.counts >= params.top_k)
        by_mass = (params.top_k == 0) & (params.top_p < 1.0) & (self.probs.sum(1) >= params.top_p * totals)
        # top_p is a share of what top_k left: without all of the top k that mass is not known
        by_ratio = (params.min_p > threshold) & ((params.top_k == 0) | (params.top_p >= 1.0))
        return np.asarray(by_count | by_mass | by_ratio | (threshold == 0.0))

    def draw(self, params: DrawParams, totals: Floats) -> Ids:
        """Keep the most likely ones (ties: the lower id first) and draw among them in order of ids."""
        order = np.argsort(-self.probs, axis=1, kind="stable")
        ranked = np.take_along_axis(self.probs, order, 1)
        num_kept = _num_kept(ranked, params, totals)
        kept = np.zeros(ranked.shape, bool)
        np.put_along_axis(kept, order, np.arange(ranked.shape[1]) < num_kept[:, None], 1)
        ends = np.where(kept, self.probs, 0.0).cumsum(1)
        slots, _ = _locate(ends, params.uniform * ends[:, -1])
        return self.token_ids[np.arange(len(slots)), slots]


def _num_kept(ranked: Floats, params: DrawParams, totals: Floats) -> Ids:
    """Count what stays of probabilities in falling order: top_k, then top_p of the mass that is left, then min_p."""
    width = ranked.shape[1]
    running = ranked.cumsum(1)
    top_k = np.where(params.top_k > 0, np.minimum(params.top_k, width), width)
    mass = np.where(params.top_k > 0, running[np.arange(len(ranked)), top_k - 1], totals)
    before = running - ranked
    within_p = (before < (params.top_p * mass)[:, None]) | (params.top_p >= 1.0)[:, None]
    within_ratio = ranked >= (params.min_p * ranked[:, 0])[:, None]
    return np.asarray(np.maximum(np.minimum(top_k, (within_p & within_ratio).sum(1)), 1))
