"""Tokenizers built from GGUF vocabularies give the ids their models were trained on."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from gguf import TokenType
from tokenizers import Tokenizer

from engines.folder import EngineFolder
from engines.openvino.gguf_model import GgufError, GgufModel
from engines.openvino.gguf_tokenizer import build_tokenizer
from tests.tiny_gguf import TinyModel, write_tiny_gguf
from tests.tiny_vocabulary import TinyVocabulary, byte_pair_vocabulary, sentence_piece_vocabulary

REFERENCE = Path(__file__).parents[2] / "data" / "smollm2_tokens.json"


def tiny_tokenizer(folder: Path, vocabulary: TinyVocabulary) -> Tokenizer:
    return build_tokenizer(GgufModel.open(write_tiny_gguf(folder / "tiny.gguf", TinyModel(vocabulary=vocabulary))))


def encode(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_default_model_has_the_reference_ids(default_engine: Path) -> None:
    tokenizer = Tokenizer.from_file(str(EngineFolder.load(default_engine).tokenizer_path))
    for case in json.loads(REFERENCE.read_text(encoding="utf-8"))["cases"]:
        assert tokenizer.encode(case["text"], add_special_tokens=True).ids == case["ids"]
        assert tokenizer.decode(case["ids"], skip_special_tokens=False) == case["text"]


@pytest.mark.parametrize(
    ("pre_tokenizer", "words"),
    [
        ("gpt-2", ["I", "'", "LL", "Ġpay", "Ġ12345", "ĊĊĠ", "Ġok", "!!", "Ċ"]),
        ("smollm", ["I", "'", "LL", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "ĊĊĠ", "Ġok", "!!", "Ċ"]),
        ("qwen2", ["I", "'LL", "Ġpay", "Ġ", "1", "2", "3", "4", "5", "ĊĊ", "Ġ", "Ġok", "!!Ċ"]),
        ("llama-bpe", ["I", "'LL", "Ġpay", "Ġ", "123", "45", "ĊĊ", "Ġ", "Ġok", "!!Ċ"]),
    ],
)
def test_words_are_cut_as_the_pre_tokenizer_says(pre_tokenizer: str, words: list[str], tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path, byte_pair_vocabulary(pre_tokenizer))
    assert tokenizer.pre_tokenizer is not None
    cut = tokenizer.pre_tokenizer.pre_tokenize_str("I'LL pay 12345\n\n  ok!!\n")
    assert [word for word, _ in cut] == words


def test_merges_run_and_marked_tokens_stay_whole(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path, byte_pair_vocabulary())
    assert encode(tokenizer, "<|im_start|>hello and<tool>the") == ["<|im_start|>", "hello", "Ġand", "<tool>", "t", "he"]
    ids = tokenizer.encode("<|im_start|>hello and<tool>the").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello and<tool>the"


def test_only_whole_word_styles_skip_the_merges(tmp_path: Path) -> None:
    unreachable = dataclasses.replace(byte_pair_vocabulary("llama-bpe"), merges=("h e",))
    assert encode(tiny_tokenizer(tmp_path, unreachable), "hello") == ["hello"]
    unreachable = dataclasses.replace(unreachable, pre_tokenizer="qwen2")
    assert encode(tiny_tokenizer(tmp_path, unreachable), "hello") == ["he", "l", "l", "o"]


def test_sentence_pieces_merge_by_score_and_fall_back_to_bytes(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path, sentence_piece_vocabulary())
    assert encode(tokenizer, "the hello") == ["▁the", "▁hello"]
    assert encode(tokenizer, "é") == ["▁", "<0xC3>", "<0xA9>"]
    assert encode(tokenizer, "<|im_start|>and<|im_end|>") == ["<|im_start|>", "▁and", "<|im_end|>"]
    text = "the née hello 你好"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("text", ["", " ", "a\x00b", "naïve 🦊 \r\n\t  x", "don't 123"])
@pytest.mark.parametrize("pre_tokenizer", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_any_text_comes_back_byte_for_byte(pre_tokenizer: str, text: str, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path, byte_pair_vocabulary(pre_tokenizer))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "bert"}, "kind 'bert'; known kinds: gpt2, llama"),
        ({"pre_tokenizer": "klingon"}, "'klingon'; known pre-tokenizers: gpt-2, smollm, qwen2, llama-bpe"),
        ({"merges": ("q x",)}, "merges that do not fit"),
        ({"merges": ("qx",)}, "without its second half"),
        ({"types": (TokenType.NORMAL,)}, r"1 x tokenizer\.ggml\.token_type for 274 tokens"),
    ],
)
def test_unknown_vocabularies_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    vocabulary = dataclasses.replace(byte_pair_vocabulary(), **changes)
    with pytest.raises(GgufError, match=message):
        tiny_tokenizer(tmp_path, vocabulary)


def test_a_token_listed_twice_is_refused(tmp_path: Path) -> None:
    vocabulary = byte_pair_vocabulary()
    twice = dataclasses.replace(vocabulary, tokens=(*vocabulary.tokens[:-1], vocabulary.tokens[5]))
    with pytest.raises(GgufError, match="1 tokens twice"):
        tiny_tokenizer(tmp_path, twice)
