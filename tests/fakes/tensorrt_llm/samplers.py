"""What each sampler of 1.2 reads of a request: TorchSampler little, TRTLLMSampler (the C++ one) everything."""

from collections.abc import Sequence

import numpy as np

from .model import Floats
from .sampling_params import SamplingParams

NEVER = np.float32(-np.inf)


class TorchSampler:
    """Reads temperature, top_k and top_p, adds the bias, and draws from one generator for all requests."""

    includes_end = True

    def __init__(self) -> None:
        self._rng = np.random.default_rng(42)

    def sample(self, logits: Floats, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]) -> int:
        logits = logits if params.bias is None else logits + params.bias.numpy()
        if params.min_tokens and len(prompt) + len(generated) < params.min_tokens and (params.end_id or -1) >= 0:
            logits = logits.copy()
            logits[params.end_id] = NEVER
        return int(logits.argmax()) if params.is_greedy else draw(logits, params, self._rng.random(), min_p=0.0)


class TRTLLMSampler:
    """Honours what SamplingConfig has; a seed of None is 0 for every request."""

    includes_end = False

    def sample(self, logits: Floats, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]) -> int:
        logits = logits.copy() if params.bias is None else logits + params.bias.numpy()
        self._penalise(logits, params, prompt, generated)
        for token_id in params.bad_token_ids or ():
            logits[token_id] = NEVER
        if params.min_tokens and len(generated) < params.min_tokens and not params.ignore_eos:
            logits[params.end_id] = NEVER
        if params.is_greedy:
            return int(logits.argmax())
        uniform = np.random.default_rng([params.seed or 0, len(generated)]).random()
        return draw(logits, params, uniform, params.min_p or 0.0)

    def _penalise(
        self, logits: Floats, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]
    ) -> None:
        vocab_size = len(logits)  # ids beyond it stand for rows of a prompt table, and are passed over
        seen = [token_id for token_id in {*prompt, *generated} if token_id < vocab_size]
        if params.repetition_penalty is not None:
            penalty = np.float32(params.repetition_penalty)
            logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
        counted = [*prompt, *generated][min(params.prompt_ignore_length or 0, len(prompt)) :]
        known = [token_id for token_id in counted if token_id < vocab_size]
        token_ids, counts = np.unique(np.array(known, np.int64), return_counts=True)
        logits[token_ids] -= np.float32(params.presence_penalty or 0.0)
        logits[token_ids] -= np.float32(params.frequency_penalty or 0.0) * counts


def draw(logits: Floats, params: SamplingParams, uniform: float, min_p: float) -> int:
    """Draw by inverse CDF. The C++ runtime's top_p of 0 and top_k of 0 without a top_p are greedy."""
    if not params.top_p:
        return int(logits.argmax())
    order = np.argsort(-logits, kind="stable")
    scaled = (logits[order] - logits[order[0]]) / (params.temperature or 1.0)
    probs = np.exp(scaled.astype(np.float64))
    probs /= probs.sum()
    kept = len(probs) if not params.top_k else params.top_k
    kept = min(kept, int(np.searchsorted(probs.cumsum(), params.top_p)) + 1, int((probs >= min_p * probs[0]).sum()))
    cumulated = probs[:kept].cumsum()
    return int(order[min(int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right")), kept - 1)])
