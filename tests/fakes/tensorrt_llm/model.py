"""A tiny random language model: logits are a function of the last few tokens and the position, and of nothing else."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
CONTEXT = 6
HIDDEN = 16
POSITIONS = 13


class TinyModel:
    def __init__(self, vocab_size: int, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.vocab_size = vocab_size
        self._embedding = rng.normal(0, 1, (vocab_size, HIDDEN)).astype(np.float32)
        self._head = rng.normal(0, 0.2, (HIDDEN, vocab_size)).astype(np.float32)
        self._position = rng.normal(0, 1.5, (POSITIONS, HIDDEN)).astype(np.float32)
        popular = rng.permutation(vocab_size)
        self._prior = (-0.35 * np.log1p(popular)).astype(np.float32)  # so that greedy answers repeat themselves

    def logits(self, token_ids: Sequence[int]) -> Floats:
        """The logits [vocab_size] behind these tokens."""
        return self.logits_behind(self.embed(token_ids[-CONTEXT:]), len(token_ids))

    def embed(self, token_ids: Sequence[int], table: Floats | None = None) -> Floats:
        """The vectors [num_tokens, HIDDEN] of tokens; ids beyond the vocabulary are rows of `table`."""
        if table is None:
            return self._embedding[np.array(token_ids, np.int64)]
        return np.concatenate([self._embedding, table[:, :HIDDEN]])[np.array(token_ids, np.int64)]

    def logits_behind(self, vectors: Floats, num_tokens: int) -> Floats:
        """The logits behind the vectors of all tokens, or of the last few of them."""
        recent = vectors[-CONTEXT:]
        weights = 0.7 ** np.arange(len(recent))[::-1]
        state = (recent * weights[:, None]).sum(0).astype(np.float32)
        row: Floats = (state + self._position[num_tokens % POSITIONS]) @ self._head + self._prior
        return row
