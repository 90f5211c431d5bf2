"""RequestOutput to TokenOutput: read at once, for TensorRT-LLM changes the same object with every response.

Source: tensorrt_llm/executor/result.py, release 1.2.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contract import MIN_LOGPROB, FinishReason, GenerationRequest, TokenLogprob, TokenOutput
from engines.errors import StepFailedError

Rows = NDArray[np.float32]


class OutputReader:
    """Reads the responses of one sequence."""

    def __init__(self, request: GenerationRequest, vocab_size: int) -> None:
        self._request = request
        self._vocab_size = vocab_size
        self._is_first = True

    def read(self, result: Any) -> TokenOutput | None:
        """Return what the newest response brought, None if that is nothing. Raises StepFailedError.

        Whether the sequence is over is decided here: by a stop token whatever reason is given, for a stop token that
        is also the last one allowed is reported as "length".
        """
        completion = result.outputs[0]
        token_ids = list(completion.token_ids_diff)
        finish_reason = self._finish_reason(token_ids, completion)
        if not token_ids and finish_reason is None:
            return None
        output = TokenOutput(
            tuple(token_ids),
            finish_reason,
            self._logprobs(token_ids, completion),
            num_cached_tokens=int(result.cached_tokens) if self._is_first else None,
            prompt_logprobs=self._prompt_logprobs(result) if self._is_first else None,
        )
        self._is_first = False
        return output

    def _finish_reason(self, token_ids: list[int], completion: Any) -> FinishReason | None:
        """Tell whether and why the sequence is over; tokens behind a stop token are dropped from `token_ids`."""
        stop = next((n for n, token_id in enumerate(token_ids) if token_id in self._request.stop_token_ids), None)
        if stop is not None:
            del token_ids[stop + 1 :]
            return FinishReason.STOP
        reason = completion.finish_reason
        if reason in (None, "not_finished"):
            return None
        if reason == "length":
            return FinishReason.LENGTH
        raise StepFailedError(f"TensorRT-LLM ended the sequence with {reason!r}, which nobody asked for")

    def _logprobs(self, token_ids: list[int], completion: Any) -> tuple[TokenLogprob, ...]:
        num_alternatives = self._request.sampling.logprobs
        if num_alternatives is None or not token_ids:
            return ()
        rows = self._rows(completion.generation_logits)
        num_new = len(completion.token_ids_diff)  # tokens behind a stop token have rows, too
        if len(rows) < num_new:
            raise StepFailedError(f"TensorRT-LLM sent {len(rows)} rows of logits for {num_new} tokens")
        return _report(rows[-num_new:][: len(token_ids)], token_ids, num_alternatives)

    def _prompt_logprobs(self, result: Any) -> tuple[TokenLogprob, ...] | None:
        num_alternatives = self._request.sampling.prompt_logprobs
        if num_alternatives is None:
            return None
        following = self._request.prompt_token_ids[1:]
        rows = self._rows(result.context_logits)
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
