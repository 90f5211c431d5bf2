"""The paged model against numpy, and the figures that make answers independent of batch, chunks and cache."""

import json
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from engines.config import EngineConfig, KVPrecision, Precision
from engines.contract import GenerationRequest, SamplingParams
from engines.errors import MemoryShortageError
from engines.folder import EngineFolder
from engines.openvino.runner import ModelRunner
from engines.openvino.sequence import ScheduledBatch, ScheduledSequence, Sequence
from tests.numpy_network import NumpyNetwork

DATA = Path(__file__).parents[2] / "data"
SPAN = 8  # blocks per sequence in these tests

Logits = NDArray[np.float32]


def load(engine: Path, precision: Precision = "auto", kv_cache_precision: KVPrecision = "auto") -> ModelRunner:
    config = EngineConfig(kv_cache_gib=0.3, precision=precision, kv_cache_precision=kv_cache_precision)
    return ModelRunner(EngineFolder.load(engine).model_path, config)


class Forced:
    """A sequence whose tokens are given, with blocks of its own."""

    def __init__(self, token_ids: list[int], slot: int = 0, block_size: int = 32) -> None:
        request = GenerationRequest(str(slot), tuple(token_ids), SamplingParams(), 1)
        self.seq = Sequence(request, [], 0, block_size)
        self.seq.block_table = list(range(slot * SPAN, (slot + 1) * SPAN))
        self.block_size = block_size

    def take(self, num_tokens: int, num_rows: int) -> ScheduledSequence:
        start = self.seq.num_computed_tokens
        self.seq.num_computed_tokens += num_tokens
        return ScheduledSequence(self.seq, start, num_tokens, num_rows)


def forward(runner: ModelRunner, *items: ScheduledSequence) -> Logits:
    """Run a step with tables cut to the blocks that hold tokens, as the scheduler grants them."""
    tables = [item.seq.block_table for item in items]
    for item in items:
        item.seq.block_table = item.seq.block_table[: -(-(item.start + item.num_tokens) // 32)]
    logits = runner.forward(ScheduledBatch(list(items))).copy()
    for item, table in zip(items, tables, strict=True):
        item.seq.block_table = table
    return logits


def whole(runner: ModelRunner, token_ids: list[int]) -> Logits:
    """Logits after each token, from one prefill."""
    return forward(runner, Forced(token_ids).take(len(token_ids), len(token_ids)))


@pytest.fixture(scope="module")
def tiny_f32(tiny_engine: Path) -> ModelRunner:
    return load(tiny_engine, "f32")


@pytest.fixture(scope="module")
def default_auto(default_engine: Path) -> ModelRunner:
    return load(default_engine, "auto")


def test_logits_equal_numpys(tiny_engine: Path, tiny_f32: ModelRunner) -> None:
    token_ids = np.random.default_rng(0).integers(0, tiny_f32.vocab_size, 70).tolist()
    expected = NumpyNetwork(tiny_engine.parent / "tiny.gguf").logits(token_ids)
    assert tiny_f32.precision == "f32"
    assert abs(whole(tiny_f32, token_ids) - expected).max() < 2e-3


def test_rows_are_those_asked_for(tiny_f32: ModelRunner) -> None:
    first, second = list(range(10)), list(range(20, 27))
    logits = forward(tiny_f32, Forced(first).take(10, 2), Forced(second, slot=1).take(7, 1))
    assert logits.shape == (3, tiny_f32.vocab_size)
    np.testing.assert_allclose(logits[:2], whole(tiny_f32, first)[-2:], atol=1e-4)
    np.testing.assert_allclose(logits[2:], whole(tiny_f32, second)[-1:], atol=1e-4)
    assert forward(tiny_f32, Forced(first).take(5, 0)).shape == (0, tiny_f32.vocab_size)


@pytest.mark.parametrize("cut", [2, 31, 32, 33, 64, 98])
def test_a_chunked_prefill_equals_a_whole_one_bit_for_bit(default_auto: ModelRunner, cut: int) -> None:
    token_ids = np.random.default_rng(1).integers(100, 40000, 100).tolist()
    expected = whole(default_auto, token_ids)[-1:]
    seq = Forced(token_ids)
    forward(default_auto, seq.take(cut, 0))
    np.testing.assert_array_equal(forward(default_auto, seq.take(100 - cut, 1)), expected)


def test_a_decode_does_not_see_its_neighbours(default_auto: ModelRunner) -> None:
    prompt = np.random.default_rng(2).integers(100, 40000, 41).tolist()

    def decode(*others: ScheduledSequence) -> Logits:
        seq = Forced(prompt)
        forward(default_auto, seq.take(40, 0))
        return forward(default_auto, seq.take(1, 1), *others)[:1]

    alone = decode()
    for num_others in (1, 7, 15):
        neighbours = [Forced(prompt[slot : slot + 9], slot) for slot in range(1, num_others + 1)]
        forward(default_auto, *[neighbour.take(8, 0) for neighbour in neighbours])
        np.testing.assert_array_equal(decode(*[neighbour.take(1, 1) for neighbour in neighbours]), alone)
    np.testing.assert_array_equal(decode(Forced(prompt * 3, slot=1).take(120, 1)), alone)


def fidelity(runner: ModelRunner, token_by_token: bool) -> tuple[float, float]:
    """Return the share of steps with the reference's best token, and the mean |difference| of its log-probabilities."""
    agreed, differences = [], []
    for case in json.loads((DATA / "smollm2_logprobs.json").read_text())["cases"]:
        prompt, answer = case["prompt_token_ids"], case["greedy_token_ids"]
        seq = Forced(prompt + answer[:-1])
        if token_by_token:
            rows = [forward(runner, seq.take(len(prompt), 1))]
            rows += [forward(runner, seq.take(1, 1)) for _ in answer[:-1]]
            logits = np.concatenate(rows)
        else:
            logits = forward(runner, seq.take(len(prompt) + len(answer) - 1, len(answer)))
        shifted = logits - logits.max(1, keepdims=True)
        logprobs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        for row, step in zip(logprobs, case["steps"], strict=True):
            agreed.append(int(row.argmax()) == step["top"][0][0])
            differences += [abs(float(row[token_id]) - logprob) for token_id, logprob in step["top"]]
    return float(np.mean(agreed)), float(np.mean(differences))


@pytest.mark.parametrize("token_by_token", [False, True], ids=["one-prefill", "token-by-token"])
@pytest.mark.parametrize(("precision", "agreement", "difference"), [("auto", 0.98, 0.05), ("f32", 1.0, 0.005)])
def test_the_default_model_is_faithful(
    default_engine: Path, precision: Precision, agreement: float, difference: float, token_by_token: bool
) -> None:
    agreed, differs = fidelity(load(default_engine, precision), token_by_token)
    print(f"{precision}: top-1 {agreed:.1%}, mean |dlogp| {differs:.4f}")
    assert agreed >= agreement
    assert differs <= difference


def test_a_u8_cache_holds_more_tokens_at_a_small_loss(default_engine: Path, default_auto: ModelRunner) -> None:
    runner = load(default_engine, kv_cache_precision="u8")
    assert runner.num_blocks > 1.6 * default_auto.num_blocks
    agreed, differs = fidelity(runner, token_by_token=True)
    print(f"u8 cache: top-1 {agreed:.1%}, mean |dlogp| {differs:.4f}")
    assert agreed >= 0.95
    assert differs <= 0.1


def test_a_cache_that_does_not_fit_is_refused_with_what_would(tiny_engine: Path) -> None:
    folder = EngineFolder.load(tiny_engine)
    with pytest.raises(MemoryShortageError, match=r"KV cache of 100000 GiB does not fit.*would fit"):
        ModelRunner(folder.model_path, EngineConfig(kv_cache_gib=100_000))


def test_a_cache_without_room_for_a_block_is_refused(tiny_engine: Path) -> None:
    folder = EngineFolder.load(tiny_engine)
    with pytest.raises(MemoryShortageError, match=r"too small: a block takes \d+ bytes"):
        ModelRunner(folder.model_path, EngineConfig(kv_cache_gib=1e-9))


def test_a_cache_can_be_a_share_of_the_free_memory(tiny_engine: Path) -> None:
    folder = EngineFolder.load(tiny_engine)
    runner = ModelRunner(folder.model_path, EngineConfig(kv_cache_fraction=0.001))
    assert 0 < runner.num_blocks * runner.layout.bytes_per_block < psutil.virtual_memory().total * 0.001
