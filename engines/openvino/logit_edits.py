"""What a request asks of its logits before a token is drawn: penalties, biases, banned tokens, held-back stops, guides.

Each sequence that asks for any of it carries a `LogitEdits`; `apply` edits the rows of all of them at once.
"""

from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from engines.contract import GenerationRequest, SamplingParams
from engines.guides import GuideMatcher

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]


class TokenCounts:
    """The distinct tokens a sequence has seen and how often it generated each: sparse arrays that grow."""

    def __init__(self, prompt_token_ids: Items[int]) -> None:
        seen = sorted(set(prompt_token_ids))
        self._slots = {token_id: slot for slot, token_id in enumerate(seen)}
        self._token_ids = np.array(seen, np.int64)
        self._counts = np.zeros(len(seen), np.float32)

    @property
    def token_ids(self) -> Ids:
        """Distinct token ids, [num_seen]."""
        return self._token_ids[: len(self._slots)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each was generated; 0 for those of the prompt only, [num_seen]."""
        return self._counts[: len(self._slots)]

    def add(self, token_id: int) -> None:
        """Count a generated token."""
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._token_ids):
            room = max(slot, 64)
            self._token_ids = np.append(self._token_ids, np.zeros(room, np.int64))
            self._counts = np.append(self._counts, np.zeros(room, np.float32))
        self._token_ids[slot] = token_id
        self._counts[slot] += 1


class LogitEdits:
    """One sequence's edits and the state they need."""

    def __init__(self, request: GenerationRequest, matcher: GuideMatcher | None) -> None:
        sampling = request.sampling
        self.sampling = sampling
        self.matcher = matcher
        self.counts = TokenCounts(_penalised_prompt(request)) if _has_penalties(sampling) else None
        banned = {sequence[0]: -np.inf for sequence in sampling.bad_token_sequences if len(sequence) == 1}
        bias = dict(sampling.logit_bias) | banned
        self.bias_token_ids = np.array(list(bias), np.int64)
        self.bias = np.array(list(bias.values()), np.float32)
        self.bad_sequences = tuple(sequence for sequence in sampling.bad_token_sequences if len(sequence) > 1)
        self.stop_token_ids = np.array(sorted(request.stop_token_ids), np.int64)
        self.num_generated_tokens = 0

    @classmethod
    def of(cls, request: GenerationRequest, matcher: GuideMatcher | None) -> "LogitEdits | None":
        """Return the request's edits, or None where it asks for none."""
        sampling = request.sampling
        asks = (
            _has_penalties(sampling)
            or sampling.logit_bias
            or sampling.bad_token_sequences
            or sampling.min_tokens
            or matcher
        )
        return cls(request, matcher) if asks else None

    def advance(self, token_id: int) -> None:
        """Take note of a token that was sampled."""
        self.num_generated_tokens += 1
        if self.counts is not None:
            self.counts.add(token_id)
        if self.matcher is not None:
            self.matcher.advance(token_id)

    def banned_after(self, token_ids: Items[int]) -> list[int]:
        """Return the last tokens of those bad sequences whose beginning was just generated."""
        return [bad[-1] for bad in self.bad_sequences if tuple(token_ids[1 - len(bad) :]) == bad[:-1]]


def _has_penalties(sampling: SamplingParams) -> bool:
    return sampling.repetition_penalty != 1.0 or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0


def _penalised_prompt(request: GenerationRequest) -> Items[int]:
    """The prompt counts for the repetition penalty only."""
    return request.prompt_token_ids if request.sampling.repetition_penalty != 1.0 else ()


def apply(logits: Logits, edits: Items[LogitEdits | None], token_ids: Items[Items[int]]) -> None:
    """Edit logits [num_rows, vocab_size] in place; row i has edits[i] and continues token_ids[i]."""
    edited = [(row, edit) for row, edit in enumerate(edits) if edit is not None]
    if not edited:
        return
    _apply_penalties(logits, [(row, edit) for row, edit in edited if edit.counts is not None])
    _apply_bias(logits, [(row, edit) for row, edit in edited if len(edit.bias)])
    for row, edit in edited:
        if edit.bad_sequences:
            logits[row, edit.banned_after(token_ids[row])] = -np.inf
        if edit.matcher is not None:
            edit.matcher.apply(logits[row])
        if edit.num_generated_tokens < edit.sampling.min_tokens:
            _hold_back_stops(logits[row], edit)


def _hold_back_stops(logits: Logits, edit: LogitEdits) -> None:
    """Mask the stop tokens in logits [vocab_size], unless a guide has come to its end and allows nothing else."""
    stops = logits[edit.stop_token_ids]
    logits[edit.stop_token_ids] = -np.inf
    if edit.matcher is not None and logits.max() == -np.inf:
        logits[edit.stop_token_ids] = stops


def _apply_penalties(logits: Logits, penalised: list[tuple[int, LogitEdits]]) -> None:
    if not penalised:
        return
    all_counts = [edit.counts for _, edit in penalised if edit.counts is not None]
    sizes = [len(counts.token_ids) for counts in all_counts]
    params = [edit.sampling for _, edit in penalised]

    def spread(values: list[float]) -> NDArray[np.float32]:
        return np.repeat(np.array(values, np.float32), sizes)

    rows = np.repeat([row for row, _ in penalised], sizes)
    token_ids = np.concatenate([counts.token_ids for counts in all_counts])
    counts = np.concatenate([counts.counts for counts in all_counts])
    repetition = spread([p.repetition_penalty for p in params])
    values = logits[rows, token_ids]
    values = np.where(values > 0, values / repetition, values * repetition)
    values -= spread([p.frequency_penalty for p in params]) * counts
    values -= spread([p.presence_penalty for p in params]) * (counts > 0)
    logits[rows, token_ids] = values


def _apply_bias(logits: Logits, biased: list[tuple[int, LogitEdits]]) -> None:
    if not biased:
        return
    rows = np.repeat([row for row, _ in biased], [len(edit.bias) for _, edit in biased])
    token_ids = np.concatenate([edit.bias_token_ids for _, edit in biased])
    logits[rows, token_ids] += np.concatenate([edit.bias for _, edit in biased])
