"""What a response of TensorRT-LLM brought to TokenOutput, whichever driver it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contract import MIN_LOGPROB, FinishReason, GenerationRequest, TokenLogprob, TokenOutput
from engines.errors import StepFailedError

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one response brought."""

    token_ids: Sequence[int]
    """Those that are new."""
    reason: str | None
    """Why the sequence is over, in TensorRT-LLM's own word; None while it runs."""
    num_cached_tokens: int = 0
    """Prompt tokens that came out of the prefix cache; only the first response is asked."""
    generation_logits: Any = None
    """Tensor [..., vocab_size padded] whose last rows are those that the new tokens were drawn from."""
    context_logits: Any = None
    """Tensor [..., vocab_size padded] of the prompt; only the first response is asked."""


class OutputBuilder:
    """Builds the outputs of one sequence, and decides when it is over."""

    def __init__(self, request: GenerationRequest, vocab_size: int) -> None:
        self._request = request
        self._vocab_size = vocab_size
        self.is_first = True
        """Whether nothing has been built yet."""

    def build(self, arrival: Arrival) -> TokenOutput | None:
        """Return what a response brought, None if that is nothing. Raises StepFailedError.

        Whether the sequence is over is decided here: by a stop token whatever reason is given, for a stop token that
        is also the last one allowed is reported as "length".
        """
        token_ids = list(arrival.token_ids)
        finish_reason = self._finish_reason(token_ids, arrival.reason)
        if not token_ids and finish_reason is None:
            return None
        output = TokenOutput(
            tuple(token_ids),
            finish_reason,
            self._logprobs(token_ids, arrival),
            num_cached_tokens=arrival.num_cached_tokens if self.is_first else None,
            prompt_logprobs=self._prompt_logprobs(arrival) if self.is_first else None,
        )
        self.is_first = False
        return output

    def _finish_reason(self, token_ids: list[int], reason: str | None) -> FinishReason | None:
        """Tell whether and why the sequence is over; tokens behind a stop token are dropped from `token_ids`."""
        stop = next((n for n, token_id in enumerate(token_ids) if token_id in self._request.stop_token_ids), None)
        if stop is not None:
            del token_ids[stop + 1 :]
            return FinishReason.STOP
        if reason is None:
            return None
        if reason == "length":
            return FinishReason.LENGTH
        raise StepFailedError(f"TensorRT-LLM ended the sequence with {reason!r}, which nobody asked for")

    def _logprobs(self, token_ids: list[int], arrival: Arrival) -> tuple[TokenLogprob, ...]:
        num_alternatives = self._request.sampling.logprobs
        if num_alternatives is None or not token_ids:
            return ()
        rows = self._rows(arrival.generation_logits)
        num_new = len(arrival.token_ids)  # tokens behind a stop token have rows, too
        if len(rows) < num_new:
            raise StepFailedError(f"TensorRT-LLM sent {len(rows)} rows of logits for {num_new} tokens")
        return _report(rows[-num_new:][: len(token_ids)], token_ids, num_alternatives)

    def _prompt_logprobs(self, arrival: Arrival) -> tuple[TokenLogprob, ...] | None:
        num_alternatives = self._request.sampling.prompt_logprobs
        if num_alternatives is None:
            return None
        following = self._request.prompt_token_ids[1:]
        rows = self._rows(arrival.context_logits)
        if len(rows) < len(following):
            raise StepFailedError(f"TensorRT-LLM sent {len(rows)} rows of logits for a prompt of {len(following) + 1}")
        return _report(rows[: len(following)], list(following), num_alternatives)

    def _rows(self, logits: Any) -> Rows:
        """Return a tensor [..., vocab_size padded] as rows [num_rows, vocab_size] of float32 on the host."""
        if logits is None:
            raise StepFailedError("TensorRT-LLM sent no logits, though they were asked for")
        rows: Rows = logits.float().cpu().numpy()
        return rows.reshape(-1, rows.shape[-1])[:, : self._vocab_size]


def _report(rows: Rows, token_ids: list[int], num_alternatives: int) -> tuple[TokenLogprob, ...]:
    """Return the log-probability of token i in row i, and the most likely tokens beside it."""
    entries = []
    for row, token_id in zip(rows, token_ids, strict=True):
        shifted = row.astype(np.float64) - row.max()
        logprobs = np.maximum(shifted - np.log(np.exp(shifted).sum()), MIN_LOGPROB)
        best = np.argsort(-logprobs, kind="stable")[:num_alternatives]
        alternatives = tuple((int(i), float(logprobs[i])) for i in best)
        entries.append(TokenLogprob(token_id, float(logprobs[token_id]), alternatives))
    return tuple(entries)
