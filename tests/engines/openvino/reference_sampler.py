"""The sampler's definition, one row at a time with a full sort: slow and plain."""

import numpy as np
from numpy.typing import NDArray

from engines.contract import SamplingParams

SLACK = 1e-6  # by how much a nucleus may miss top_p


def kept_probs(logits: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float64]:
    """Return the probabilities [vocab_size] after temperature, top_k, top_p and min_p; they sum to 1."""
    scaled = (logits - logits.max()).astype(np.float64) / params.temperature
    probs = np.exp(scaled)
    order = sorted(range(len(probs)), key=lambda token_id: (-probs[token_id], token_id))
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1.0:
        limit = params.top_p * sum(probs[i] for i in order) * (1 - SLACK)
        mass, count = 0.0, 0
        while mass < limit:
            mass += probs[order[count]]
            count += 1
        order = order[: max(count, 1)]
    order = [i for i in order if probs[i] >= params.min_p * probs[order[0]]]
    kept = np.zeros(len(probs))
    kept[order] = probs[order]
    normalised: NDArray[np.float64] = kept / kept.sum()
    return normalised


def sample(logits: NDArray[np.float32], params: SamplingParams, number: float) -> int:
    """Return the first token id at which the running sum of what is kept exceeds the uniform number."""
    if params.temperature == 0:
        return int(logits.argmax())
    sums = kept_probs(logits, params).cumsum()
    return int(np.flatnonzero(sums > number * sums[-1])[0])
