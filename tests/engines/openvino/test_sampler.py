"""The vectorised sampler against the plain one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engines.contract import GenerationRequest, SamplingParams
from engines.openvino.draws import uniform
from engines.openvino.sampler import Sampler
from engines.openvino.sequence import Sequence
from tests.engines.openvino import reference_sampler

VOCAB_SIZE = 3000  # not a multiple of the chunk; 20,000 needs every width of the sampler


def sequence(params: SamplingParams, prompt: tuple[int, ...] = (1, 2)) -> Sequence:
    return Sequence(GenerationRequest("s", prompt, params, 100), [], 0, 32)


def number_of(seq: Sequence) -> float:
    return float(uniform(np.array([seq.seed], np.uint64), np.array([len(seq.token_ids)], np.uint64))[0])


def random_logits(rows: int, seed: int = 0, scale: float = 3.0, vocab_size: int = VOCAB_SIZE) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((rows, vocab_size)) * scale).astype(np.float32)


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.7]),
    top_k=st.sampled_from([0, 0, 1, 2, 50, 1500, 5000]),
    top_p=st.sampled_from([1.0, 1.0, 0.999, 0.95, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 1e-4, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=80, deadline=None)
@given(
    batch=st.lists(PARAMS, min_size=1, max_size=9),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    vocab_size=st.sampled_from([5, 256, VOCAB_SIZE, 20_000]),
)
def test_every_token_equals_the_plain_samplers(
    batch: list[SamplingParams], seed: int, scale: float, vocab_size: int
) -> None:
    logits = random_logits(len(batch), seed, scale, vocab_size)
    logits = (
        np.round(logits * 4) / np.float32(4) if seed % 2 else logits
    )  # every second time with many ties, as bf16 has them
    seqs = [sequence(params) for params in batch]
    sampled = Sampler(vocab_size).sample(logits.copy(), seqs)
    for row, seq in enumerate(seqs):
        expected = reference_sampler.sample(logits[row], seq.sampling, number_of(seq))
        if sampled[row] != expected:  # float32 sums may differ from float64 ones where a number hits a border
            probs = reference_sampler.kept_probs(logits[row], seq.sampling)
            border = abs(probs.cumsum() - number_of(seq)).min()
            assert border < 1e-5
            assert probs[sampled[row]] > 0 or seq.sampling.top_p < 1.0


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.7, top_p=0.9),
        SamplingParams(top_k=8),
        SamplingParams(min_p=0.1),
        SamplingParams(temperature=1.5, top_k=20, top_p=0.8, min_p=0.02),
    ],
)
def test_seeds_draw_from_the_right_distribution(params: SamplingParams) -> None:
    logits = random_logits(1, seed=3, scale=1.5, vocab_size=40)
    num_draws = 8000
    seqs = [sequence(SamplingParams(params.temperature, params.top_k, params.top_p, params.min_p, seed))
            for seed in range(num_draws)]  # fmt: skip
    sampled = Sampler(40).sample(np.repeat(logits, num_draws, axis=0), seqs)
    expected = reference_sampler.kept_probs(logits[0], params) * num_draws
    counts = np.bincount(sampled, minlength=40)
    assert not counts[expected == 0].any()
    likely = expected > 5
    chi_square = (((counts - expected) ** 2)[likely] / expected[likely]).sum()
    degrees = likely.sum() - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)  # four standard deviations


def test_a_rows_token_does_not_depend_on_its_neighbours() -> None:
    logits = random_logits(16, seed=1)
    seqs = [sequence(SamplingParams(top_p=0.9 if row % 3 else 1.0, seed=row)) for row in range(16)]
    together = Sampler(VOCAB_SIZE).sample(logits.copy(), seqs)
    alone = [Sampler(VOCAB_SIZE).sample(logits[row : row + 1].copy(), seqs[row : row + 1])[0] for row in range(16)]
    assert together == alone


def test_an_unseeded_sequence_draws_a_seed_of_its_own() -> None:
    assert sequence(SamplingParams()).seed != sequence(SamplingParams()).seed


def test_of_equal_tokens_the_lower_ids_are_kept() -> None:
    logits = np.zeros((400, 4), np.float32)
    seqs = [sequence(SamplingParams(top_p=0.5, seed=seed)) for seed in range(400)]
    assert set(Sampler(4).sample(logits, seqs)) == {0, 1}


def test_greedy_takes_the_first_of_the_largest() -> None:
    logits = np.zeros((1, 300), np.float32)
    logits[0, [7, 290]] = 1.0
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=1e-9), SamplingParams(top_k=1, seed=5)):
        assert Sampler(300).sample(logits.copy(), [sequence(params)]) == [7]


def test_extreme_logits_give_no_nan_and_no_impossible_token() -> None:
    logits = np.full((2, 600), -np.inf, np.float32)
    logits[:, 555] = 1e30
    seqs = [sequence(SamplingParams(seed=1)), sequence(SamplingParams(top_p=0.5, temperature=1e-4, seed=1))]
    assert Sampler(600).sample(logits, seqs) == [555, 555]


def test_uniform_numbers_are_in_range_differ_and_never_change() -> None:
    seeds = np.repeat(np.arange(50, dtype=np.uint64), 50)
    positions = np.tile(np.arange(50, dtype=np.uint64), 50)
    numbers = uniform(seeds, positions)
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert len(set(numbers.tolist())) == 2500
    assert abs(numbers.mean() - 0.5) < 0.02
    assert numbers[:2].tolist() == uniform(np.zeros(2, np.uint64), np.arange(2, dtype=np.uint64)).tolist()
