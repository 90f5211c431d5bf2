"""How each row of a step is drawn, and the uniform numbers it is drawn with."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engines.openvino.cdf import Floats, Ids
from engines.openvino.sequence import Sequence


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

    @property
    def is_nucleus(self) -> NDArray[np.bool_]:
        """Which rows are cut by top_p alone."""
        return np.asarray((self.top_k == 0) & (self.top_p < 1.0) & (self.min_p == 0.0))

    def take(self, rows: Ids | slice) -> "DrawParams":
        """Return the parameters of some rows."""
        return DrawParams(
            self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows]
        )


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
