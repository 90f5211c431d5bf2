"""Edits of the logits against a plain reference, one row and one token at a time."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engines.contract import GenerationRequest, SamplingParams
from engines.guides import GuideMatcher
from engines.openvino import logit_edits
from engines.openvino.logit_edits import LogitEdits
from engines.openvino.logprobs import RawLogprobs

VOCAB_SIZE = 30
STOP = (3, 4)
TOKEN_IDS = st.integers(0, VOCAB_SIZE - 1)

PARAMS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25, 2.0]),
    logit_bias=st.dictionaries(TOKEN_IDS, st.sampled_from([-100.0, -1.5, 2.0, 100.0]), max_size=4),
    bad_token_sequences=st.lists(st.lists(TOKEN_IDS, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    min_tokens=st.sampled_from([0, 0, 3]),
)


def expected(logits: NDArray[np.float32], request: GenerationRequest, generated: list[int]) -> NDArray[np.float32]:
    params, out = request.sampling, logits.copy()
    counts = Counter(generated)
    for token_id in {*request.prompt_token_ids, *generated}:
        factor = np.float32(params.repetition_penalty)
        out[token_id] = out[token_id] / factor if out[token_id] > 0 else out[token_id] * factor
    for token_id, count in counts.items():
        out[token_id] -= np.float32(params.frequency_penalty) * np.float32(count)
        out[token_id] -= np.float32(params.presence_penalty)
    for token_id, bias in params.logit_bias.items():
        out[token_id] += np.float32(bias)
    history = [*request.prompt_token_ids, *generated]
    for *begin, last in params.bad_token_sequences:
        if not begin or history[-len(begin) :] == begin:
            out[last] = -np.inf
    if len(generated) < params.min_tokens:
        out[list(STOP)] = -np.inf
    return out


@settings(max_examples=150, deadline=None)
@given(
    batch=st.lists(
        st.tuples(PARAMS, st.lists(TOKEN_IDS, min_size=1, max_size=8), st.lists(TOKEN_IDS, max_size=90)),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 1000),
)
def test_a_batch_of_edits_equals_the_plain_rule_row_by_row(
    batch: list[tuple[SamplingParams, list[int], list[int]]], seed: int
) -> None:
    logits = np.random.default_rng(seed).standard_normal((len(batch), VOCAB_SIZE)).astype(np.float32) * 3
    edits, histories, wanted = [], [], []
    for row, (params, prompt, generated) in enumerate(batch):
        request = GenerationRequest(str(row), tuple(prompt), params, 100, stop_token_ids=frozenset(STOP))
        edit = LogitEdits.of(request, None)
        for token_id in generated:
            if edit is not None:
                edit.advance(token_id)
        edits.append(edit)
        histories.append([*prompt, *generated])
        wanted.append(expected(logits[row], request, generated))
    logit_edits.apply(logits, edits, histories)
    np.testing.assert_allclose(logits, np.stack(wanted), rtol=1e-5, atol=1e-5)


class EndedGuide(GuideMatcher):
    """The matcher of a guide that has come to its end."""

    def __init__(self) -> None:
        pass

    def apply(self, logits: NDArray[np.float32]) -> None:
        logits[[token_id for token_id in range(VOCAB_SIZE) if token_id not in STOP]] = -np.inf


def test_a_guide_may_end_before_min_tokens() -> None:
    request = GenerationRequest("a", (1,), SamplingParams(min_tokens=9), 9, stop_token_ids=frozenset(STOP))
    logits = np.zeros((1, VOCAB_SIZE), np.float32)
    logit_edits.apply(logits, [LogitEdits.of(request, EndedGuide())], [[1]])
    assert np.flatnonzero(np.isfinite(logits[0])).tolist() == list(STOP)


def test_a_request_that_asks_for_nothing_has_no_edits() -> None:
    assert LogitEdits.of(GenerationRequest("a", (1,), SamplingParams(top_p=0.5, logprobs=3), 9), None) is None


def test_raw_logprobs_are_a_log_softmax_with_ties_by_id() -> None:
    logits = np.array([[1.0, 3.0, 3.0, -np.inf, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    first, second = RawLogprobs(logits, [0, 1], [3, 0]).of([3, 4])
    exact = logits[0] - np.log(np.exp(logits[0].astype(np.float64)).sum())
    assert [token_id for token_id, _ in first.alternatives] == [1, 2, 4]
    np.testing.assert_allclose([value for _, value in first.alternatives], exact[[1, 2, 4]], atol=1e-6)
    assert first.logprob == -9999.0
    assert (second.alternatives, second.token_id) == ((), 4)
    np.testing.assert_allclose(second.logprob, np.log(0.2), atol=1e-6)
    np.testing.assert_array_equal(logits[0, :2], [1.0, 3.0])  # the logits themselves are left alone
