import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_server.tokenizer import INLINE_CHARS, Detokenizer, Tokenizer, TokenizerError, TooManyTokensError
from tests.doubles import END_ID, byte_tokenizer

BYTES = byte_tokenizer()
DATA = Path(__file__).parent.parent / "data"
texts = st.text(max_size=40)


def sentencepiece(decoder: Any, *words: str) -> Tokenizer:
    """A vocabulary in SentencePiece's spelling: words, then the 256 byte tokens."""
    vocab = {"<unk>": 0, **{word: 1 + n for n, word in enumerate(words)}}
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": True}
    return Tokenizer(json.dumps({"version": "1.0", "added_tokens": [], "decoder": decoder, "model": model}))


def llama_decoder(*, strip: bool = True) -> Any:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {"type": "Sequence", "decoders": steps + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * strip}


def streamed(tokenizer: Tokenizer, token_ids: list[int], **options: Any) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [*(detokenizer.feed(token_id) for token_id in token_ids), detokenizer.flush()]


@given(texts)
def test_bytes_come_back_as_the_text_they_are(text: str) -> None:
    pieces = streamed(BYTES, BYTES.encode(text))
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_become_what_python_makes_of_them(values: list[int]) -> None:
    assert "".join(streamed(BYTES, values)) == bytes(values).decode(errors="replace")


def test_half_a_character_waits_for_its_other_half() -> None:
    assert streamed(BYTES, [*"🦜".encode()]) == ["", "", "", "🦜", ""]
    assert streamed(BYTES, [*"🦜".encode()[:3]]) == ["", "", "", "\ufffd"]
    assert streamed(BYTES, [*"é".encode()[:1], ord("x")]) == ["", "\ufffdx", ""]


def test_special_tokens_are_text() -> None:
    assert streamed(BYTES, [0xC3, END_ID, 73]) == ["", "\ufffd<|im_end|>", "I", ""]


def test_special_tokens_in_a_prompt_are_recognised_unless_it_is_literal() -> None:
    assert BYTES.encode("a<|im_end|>") == [97, END_ID]
    assert BYTES.encode("a<|im_end|>", literal=True) == [*b"a<|im_end|>"]
    assert BYTES.token_id("<|im_end|>") == END_ID
    assert BYTES.token_id("a") is None
    assert BYTES.special_tokens["<|im_end|>"] == END_ID


def with_added(model: dict[str, Any], *added: dict[str, Any], **sections: Any) -> Tokenizer:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    source = {"version": "1.0", "decoder": llama_decoder(), "model": {"type": "BPE", **model}, **sections}
    return Tokenizer(json.dumps(source | {"added_tokens": [flags | token for token in added]}))


def test_a_literal_text_has_no_control_token_even_where_merges_would_make_one() -> None:
    vocab = {text: n for n, text in enumerate(["<", ">", "x", "x>", "<x>", "<b>", "b"])}
    merges = ["x >", ["<", "x>"]]
    for form in (merges, [*merges[:1], "< x>"]):
        pairs = [
            merge.split(" ") if isinstance(merge, str) and not isinstance(form[1], str) else merge for merge in form
        ]
        tokenizer = with_added(
            {"vocab": vocab, "merges": pairs}, {"id": 4, "content": "<x>"}, {"id": 5, "content": "<b>"}
        )
        assert tokenizer.control_tokens == ("<x>",)
        assert tokenizer.encode("<x><b>") == [4, 5]
        assert tokenizer.encode("<x><b>", literal=True) == [0, 3, 5]


def test_blanks_and_html_tags_among_the_added_tokens_are_writing() -> None:
    added = ["<eos>", "\n\n", "▁▁", "<table>", "</h1>", "<tool_call>", "<think>", "<|fim_prefix|>", "<s>"]
    tokens = [{"id": 1 + n, "content": text, "special": text == "<eos>"} for n, text in enumerate(added)]
    tokenizer = with_added({"vocab": {"x": 0}, "merges": []}, *tokens)
    assert tokenizer.control_tokens == ("<eos>", "<tool_call>", "<think>", "<|fim_prefix|>", "<s>")


def test_a_literal_text_behind_a_control_token_gets_no_first_space() -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    vocab = {text: n for n, text in enumerate(["▁", "a", "<", ">"])}
    tokenizer = with_added({"vocab": vocab, "merges": []}, {"id": 4, "content": "<aa>"}, pre_tokenizer=metaspace)
    assert tokenizer.encode("<aa>a") == [4, 1]
    assert tokenizer.encode("a<aa>", literal=True) == [1, 2, 1, 1, 3]


def test_the_first_literal_text_is_encoded_in_the_pool_too() -> None:
    with ThreadPoolExecutor(1) as pool:
        tokenizer = byte_tokenizer(pool)
        for _ in range(2):
            assert asyncio.run(tokenizer.encode_async("<think>", limit=9, literal=True)) == [*b"<think>"]


@pytest.mark.parametrize("strip", [True, False])
def test_sentencepiece_gives_what_its_own_decoder_gives(strip: bool) -> None:
    tokenizer = sentencepiece(llama_decoder(strip=strip), "▁Hi", "▁", "there", "▁▁")
    parrot = [4 + 1 + byte for byte in "🦜".encode()]
    token_ids = [1, 2, 3, *parrot, 4, 1]
    whole = tokenizer._backend.decode(token_ids, skip_special_tokens=False)
    assert "".join(streamed(tokenizer, token_ids)) == whole == " Hi there🦜   Hi"[strip:]
    assert "".join(streamed(tokenizer, token_ids, continues_text=True)) == " Hi there🦜   Hi"


@pytest.mark.parametrize(("scheme", "text"), [("always", "Hi Hi"), ("never", " Hi Hi")])
def test_metaspace_strips_the_space_it_put_there(scheme: str, text: str) -> None:
    decoder = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    assert sentencepiece(decoder, "▁Hi").decode([1, 1]) == text


def test_a_decoder_of_another_kind_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="WordPiece"):
        sentencepiece({"type": "WordPiece", "prefix": "##", "cleanup": True})
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_long_texts_are_encoded_in_the_pool() -> None:
    text = "harbour " * INLINE_CHARS
    with ThreadPoolExecutor(1) as pool:
        tokenizer = byte_tokenizer(pool)
        assert asyncio.run(tokenizer.encode_async(text, limit=len(text))) == [*text.encode()]
        with pytest.raises(TooManyTokensError, match=str(-(-len(text) // len("<|endoftext|>")))):
            asyncio.run(tokenizer.encode_async(text, limit=len(text) // 16))


@given(texts)
def test_a_text_never_has_fewer_tokens_than_its_bound(text: str) -> None:
    assert BYTES.fewest_tokens(text) <= len(BYTES.encode(text))


def test_vocabularies_that_may_swallow_text_have_no_bound() -> None:
    assert sentencepiece(llama_decoder(), "a").fewest_tokens("a" * 1000) == 0


def test_the_default_models_text_comes_back_wherever_its_tokens_end(default_engine: Path) -> None:
    tokenizer = Tokenizer.load(default_engine / "tokenizer.json")
    text = "def f(x):\n    return x  # naïve 🦜➡️🧭 葡萄\n\n<|im_end|> 12345"
    token_ids = tokenizer.encode(text)
    assert "".join(streamed(tokenizer, token_ids)) == text
    lost = "a\x04" * 500  # this vocabulary has no token for byte 4
    assert 0 < tokenizer.fewest_tokens(lost) <= 500 == len(tokenizer.encode(lost))
    for token_id in range(tokenizer.vocab_size):
        spelled = tokenizer._backend.decode([token_id], skip_special_tokens=False)
        assert tokenizer.token_bytes(token_id).decode(errors="replace") == spelled


def test_the_default_models_prompts_have_the_reference_token_ids(default_engine: Path) -> None:
    tokenizer = Tokenizer.load(default_engine / "tokenizer.json")
    cases = json.loads((DATA / "smollm2_tokens.json").read_text(encoding="utf-8"))["cases"]
    assert [tokenizer.encode(case["text"]) for case in cases] == [case["ids"] for case in cases]
