"""The vocabulary inside a GGUF file, as a `tokenizers` tokenizer with the same ids.

Two kinds exist: "gpt2", byte-level BPE whose words are cut by a named pre-tokenizer, and "llama", SentencePiece BPE
with byte fallback. Neither adds BOS or EOS: prompts carry them. Sources of the patterns: tokenizer.json of
openai-community/gpt2, HuggingFaceTB/SmolLM2-135M-Instruct, Qwen/Qwen2.5-7B-Instruct, TinyLlama/TinyLlama-1.1B-Chat-v1.0
and meta-llama/Meta-Llama-3-8B-Instruct.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engines.openvino.gguf_model import GgufError, GgufModel

_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_WORDS = _QWEN2_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_SPACE = "\u2581"  # SentencePiece writes a space as this character


@dataclass(frozen=True, slots=True)
class _BytePairStyle:
    """How text is cut before the merges of a byte-level vocabulary run.

    `whole_words`: a word that is a token stays whole, whatever the merges say.
    """

    pre_tokenizer: pre_tokenizers.PreTokenizer
    normalizer: normalizers.Normalizer | None = None
    whole_words: bool = False


def _words(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2_words() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_BYTE_PAIR_STYLES: Mapping[str, Callable[[], _BytePairStyle]] = {
    "gpt-2": lambda: _BytePairStyle(_gpt2_words()),
    "smollm": lambda: _BytePairStyle(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2_words()])
    ),
    "qwen2": lambda: _BytePairStyle(_words(_QWEN2_WORDS), normalizer=normalizers.NFC()),
    "llama-bpe": lambda: _BytePairStyle(_words(_LLAMA3_WORDS), whole_words=True),
}


def build_tokenizer(model: GgufModel) -> Tokenizer:
    """Build the tokenizer of the file's vocabulary. Raises GgufError on a kind or pre-tokenizer it does not know."""
    kind = model.text("tokenizer.ggml.model") or "(none)"
    build = _KINDS.get(kind)
    if build is None:
        raise GgufError(f"{model.path} has a vocabulary of kind {kind!r}; known kinds: {', '.join(_KINDS)}")
    tokens = model.tokens()
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise GgufError(f"{model.path} has {len(tokens) - len(vocab)} tokens twice in its vocabulary")
    tokenizer = build(model, vocab)
    _add_marked_tokens(tokenizer, tokens, model.per_token("token_type"))
    return tokenizer


def _build_byte_pair(model: GgufModel, vocab: dict[str, int]) -> Tokenizer:
    name = model.text("tokenizer.ggml.pre") or "(none)"
    if name not in _BYTE_PAIR_STYLES:
        known = ", ".join(_BYTE_PAIR_STYLES)
        raise GgufError(f"{model.path} has the pre-tokenizer {name!r}; known pre-tokenizers: {known}")
    style = _BYTE_PAIR_STYLES[name]()
    merges = [_split_merge(model, merge) for merge in model.strings("tokenizer.ggml.merges")]
    tokenizer = _byte_pair_encoder(model, vocab, merges, ignore_merges=style.whole_words)
    tokenizer.pre_tokenizer = style.pre_tokenizer
    if style.normalizer is not None:
        tokenizer.normalizer = style.normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_pair_encoder(
    model: GgufModel, vocab: dict[str, int], merges: list[tuple[str, str]], **options: Any
) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(vocab, merges, **options))
    except Exception as exc:  # tokenizers raises nothing narrower
        raise GgufError(f"{model.path} has merges that do not fit its vocabulary: {exc}") from exc


def _split_merge(model: GgufModel, merge: str) -> tuple[str, str]:
    left, separator, right = merge.partition(" ")
    if not separator:
        raise GgufError(f"{model.path} has the merge {merge!r} without its second half")
    return left, right


def _build_sentence_piece(model: GgufModel, vocab: dict[str, int]) -> Tokenizer:
    unknown = model.token_id("unknown")
    unknown_text = None if unknown is None else model.tokens()[unknown]
    merges = _merges_by_score(vocab, model.per_token("scores"))
    tokenizer = _byte_pair_encoder(model, vocab, merges, unk_token=unknown_text, fuse_unk=True, byte_fallback=True)
    space_first = model.flag("tokenizer.ggml.add_space_prefix", default=True)
    as_pieces = [normalizers.Prepend(_SPACE)] if space_first else []
    tokenizer.normalizer = normalizers.Sequence([*as_pieces, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if space_first else []
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges_by_score(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """List the merges a SentencePiece vocabulary implies: every cut of a piece into two pieces, best score first."""

    def cuts(piece: str) -> Iterator[tuple[str, str]]:
        for at in range(1, len(piece)):
            if piece[:at] in vocab and piece[at:] in vocab:
                yield piece[:at], piece[at:]

    by_score = sorted(vocab, key=lambda piece: (-scores[vocab[piece]], vocab[piece]))
    return [cut for piece in by_score for cut in sorted(cuts(piece), key=lambda cut: (vocab[cut[0]], vocab[cut[1]]))]


def _add_marked_tokens(tokenizer: Tokenizer, tokens: list[str], types: list[float]) -> None:
    """Make control tokens special and user-defined ones whole: both are found in the text before the merges run."""
    for token, token_type in zip(tokens, types, strict=True):
        if token_type in (TokenType.CONTROL, TokenType.UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif token_type == TokenType.USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])


_KINDS: Mapping[str, Callable[[GgufModel, dict[str, int]], Tokenizer]] = {
    "gpt2": _build_byte_pair,
    "llama": _build_sentence_piece,
}
