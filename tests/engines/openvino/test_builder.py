"""Engines built from GGUF files compute what the numpy network and Hugging Face transformers compute."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engines.building import BuildError
from engines.folder import EngineFolder
from engines.openvino.builder import build_engine
from engines.openvino.gguf_model import GgufError
from tests.engine_fixtures import build_request, build_tiny_engine
from tests.engines.openvino.stateful_model import StatefulModel
from tests.numpy_network import NumpyNetwork
from tests.tiny_gguf import RopeScaling, TinyModel, write_tiny_gguf
from tests.tiny_vocabulary import CHAT_TEMPLATE, byte_pair_vocabulary, sentence_piece_vocabulary

REFERENCE = Path(__file__).parents[2] / "data" / "smollm2_logprobs.json"
TOKEN_IDS = [1, 40, 77, 105, 3, 200, 258, 260, 12, 12, 90, 2, 64, 131, 99, 5]


TINY_MODELS = [
    TinyModel("llama", "f32"),
    TinyModel("llama", "q4_1"),
    TinyModel("llama", "q8_0", tied_head=False, seed=1),
    TinyModel("llama", "bf16", num_kv_heads=4, rope_freq_base=500_000.0),
    TinyModel("qwen2", "f16"),
    TinyModel("qwen2", "q4_0", tied_head=False),
    TinyModel("qwen3", "f32"),
    TinyModel("qwen3", "q5_1", head_size=32, tied_head=False),
]


@pytest.mark.parametrize("model", TINY_MODELS, ids=lambda model: f"{model.architecture}-{model.quantisation}")
def test_logits_equal_the_numpy_network(model: TinyModel, tmp_path: Path) -> None:
    engine = build_tiny_engine(tmp_path, model)
    expected = NumpyNetwork(tmp_path / "tiny.gguf").logits(TOKEN_IDS)
    assert expected.std() > 0.5
    np.testing.assert_allclose(StatefulModel(engine).logits(TOKEN_IDS), expected, atol=1e-4, rtol=0)


def test_a_split_model_is_the_same_as_the_whole_one(tiny_engine: Path, tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "tiny.gguf", tensors_per_part=8)
    assert len(list(tmp_path.iterdir())) == 3
    engine = tmp_path / "engine"
    engine.mkdir()
    split = build_engine(build_request(first), engine, "tests")
    whole = EngineFolder.load(tiny_engine)
    for name in ("openvino_model.bin", "tokenizer.json", "chat_template.jinja"):
        assert split.files[name] == whole.files[name]


@pytest.mark.parametrize("scaling", ["none", "linear", "factors"])
def test_logits_stay_exact_thousands_of_tokens_on(scaling: RopeScaling, tmp_path: Path) -> None:
    engine = build_tiny_engine(tmp_path, TinyModel(context_length=4096, rope_scaling=scaling))
    token_ids = np.random.default_rng(0).integers(3, 260, 3000).tolist()
    expected = NumpyNetwork(tmp_path / "tiny.gguf").logits(token_ids)
    np.testing.assert_allclose(StatefulModel(engine).logits(token_ids), expected, atol=2e-4, rtol=0)


def test_default_model_is_faithful_to_transformers_in_float32(default_engine: Path) -> None:
    model, distances = StatefulModel(default_engine), list[float]()
    for case in json.loads(REFERENCE.read_text(encoding="utf-8"))["cases"]:
        prompt, answer = case["prompt_token_ids"], case["greedy_token_ids"]
        whole = model.logits(prompt + answer[:-1])[len(prompt) - 1 :]
        decoded = [model.logits(prompt)[-1]]
        decoded += [model.more_logits([token], len(prompt) + i)[-1] for i, token in enumerate(answer[:-1])]
        for rows in (whole, np.stack(decoded)):
            assert rows.argmax(axis=-1).tolist() == answer
            distances += _logprob_distances(rows, case["steps"])
    assert np.mean(distances) <= 0.003


def test_engine_folder_states_the_facts_of_the_file(tiny_engine: Path) -> None:
    folder = EngineFolder.load(tiny_engine, verify=True)
    facts = folder.description
    assert (facts.engine, facts.model_name, facts.architecture, facts.precision) == (
        "openvino",
        "Tiny llama",
        "llama",
        "f16",
    )
    assert (facts.vocab_size, facts.max_sequence_length) == (len(byte_pair_vocabulary().tokens), 512)
    assert (facts.end_token_ids, facts.eos_text) == ((2, 0), "<|im_end|>")
    assert (facts.bos_token_id, facts.bos_text, facts.prompt_starts_with_bos) == (1, "<|im_start|>", False)
    assert facts.versions.keys() == {"openvino", "openvino-genai", "gguf", "tokenizers"}
    assert folder.chat_template == CHAT_TEMPLATE
    assert folder.generation_config() == {}
    assert {file.name for file in tiny_engine.iterdir()} == {*folder.files, "engine.json"}


def test_sampling_defaults_come_along(tmp_path: Path) -> None:
    sampling = {"temp": 0.7, "top_k": 20, "penalty_repeat": 1.25}
    extra = {f"general.sampling.{name}": value for name, value in sampling.items()}
    engine = build_tiny_engine(tmp_path, TinyModel(extra=extra))
    text = (engine / "generation_config.json").read_text(encoding="utf-8")
    assert json.loads(text) == EngineFolder.load(engine).generation_config()
    assert text.split() == ["{", '"temperature":', "0.7,", '"top_k":', "20,", '"repetition_penalty":', "1.25", "}"]


def test_sentence_piece_model_becomes_an_engine(tmp_path: Path) -> None:
    engine = build_tiny_engine(tmp_path, TinyModel(vocabulary=sentence_piece_vocabulary()))
    tokenizer = Tokenizer.from_file(str(EngineFolder.load(engine).tokenizer_path))
    token_ids = tokenizer.encode("<|im_start|>the hello é").ids
    expected = NumpyNetwork(tmp_path / "tiny.gguf").logits(token_ids)
    np.testing.assert_allclose(StatefulModel(engine).logits(token_ids), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("swapped", "error", "message"),
    [
        ((b"ffn_gate", b"ffn_down"), BuildError, r"could not convert the model: .+"),
        ((b"attn_q", b"attn_k"), GgufError, "lacks 0 of its vectors or its rope frequencies"),
    ],
)
def test_weights_that_do_not_fit_are_one_error_and_leave_nothing(
    swapped: tuple[bytes, bytes], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path, engine = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "engine"
    one, other = swapped
    aside = b"?" * len(one)
    path.write_bytes(path.read_bytes().replace(one, aside).replace(other, one).replace(aside, other))
    engine.mkdir()
    with pytest.raises(error, match=message):
        build_engine(build_request(path), engine, "tests")
    assert list(engine.iterdir()) == []


def _logprob_distances(logits: NDArray[np.float32], steps: list[dict[str, list[tuple[int, float]]]]) -> list[float]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    listed = ((row, *entry) for row, step in zip(logprobs, steps, strict=True) for entry in step["top"])
    return [abs(float(row[token_id]) - logprob) for row, token_id, logprob in listed]
