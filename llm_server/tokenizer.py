"""Text to token ids and back, in process, on top of `tokenizers`.

The way back is exact by construction: every token of the supported vocabularies stands for a run of bytes, so the
bytes of an answer's tokens go through one incremental UTF-8 decoder and a character is given out when its last byte
has arrived. How a token spells its bytes is read from the `decoder` section of tokenizer.json: the byte alphabet of
GPT-2 (byte-level BPE), or SentencePiece's "▁" for a space with `<0xE2>` tokens for single bytes.
"""

import asyncio
import codecs
import json
import re
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from stylers.literal_search import any_of

INLINE_CHARS = 4096  # a longer text is encoded in the pool, so that it does not hold up the event loop
SPACE_MARK = "\u2581"  # SentencePiece's space
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
WRITING = re.compile(
    rf"[\s{SPACE_MARK}]+"
    r"|</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|[abiup]|su[bp]|code|img|pre|[uo]l|li)>"
)  # added tokens that steer nothing: vocabularies such as Gemma's have runs of blanks and HTML tags among them

JsonObject: TypeAlias = Mapping[str, object]


class TokenizerError(Exception):
    """A tokenizer.json that cannot be served."""


class TooManyTokensError(Exception):
    """A text that has more tokens than there is room for: `at_least` so many."""

    def __init__(self, at_least: int) -> None:
        super().__init__(f"at least {at_least} tokens")
        self.at_least = at_least


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the tokens of a vocabulary spell their bytes."""

    byte_level: bool
    byte_tokens: bool = False
    """`<0xE2>` stands for one byte."""
    strips_first_space: bool = False
    """The encoder put a space before the text, so the decoder takes one off."""


class Tokenizer:
    """One model's tokenizer. Never adds special tokens: a prompt holds its own."""

    def __init__(self, source: str, pool: ThreadPoolExecutor | None = None) -> None:
        self._source = source
        self._backend = Backend.from_str(source)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._pool = pool
        self._bytes: dict[int, bytes] = {}
        config = json.loads(source)
        self.spelling = _spelling(config)
        self._keeps_every_byte = self.spelling.byte_level and _keeps_every_byte(config)
        added: dict[int, AddedToken] = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added_ids = {token.content: token_id for token_id, token in added.items()}
        self._added = {token.content: token for token in added.values()}

    @classmethod
    def load(cls, path: Path, pool: ThreadPoolExecutor | None = None) -> "Tokenizer":
        """Read a tokenizer.json. Raises TokenizerError."""
        try:
            return cls(path.read_text(encoding="utf-8"), pool)
        except TokenizerError:
            raise
        except Exception as exc:  # tokenizers raises bare Exception
            raise TokenizerError(f"{path} cannot be read as a tokenizer: {exc}") from exc

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """Return the ids of a text; control tokens in it are recognised unless it is `literal`.

        A literal text is meant to follow a control token: it is given no space in front that only a prompt's first
        word has.
        """
        backend = self._literal_backend if literal and self.mentions_control_token(text) else self._backend
        return backend.encode(text, add_special_tokens=False).ids

    async def encode_async(self, text: str, limit: int, *, literal: bool = False) -> list[int]:
        """Encode without holding up the event loop: long texts go to the pool, where `tokenizers` drops the GIL.

        Raises TooManyTokensError, sooner than the text could be encoded, where it is sure to have more than `limit`.
        """
        is_ready = not literal or "_literal_backend" in vars(self)  # made when first needed, in a second or so
        if self._pool is None or (len(text) <= INLINE_CHARS and is_ready):
            return self.encode(text, literal=literal)
        encode = partial(self._encode_within, text, limit, literal)
        return await asyncio.get_running_loop().run_in_executor(self._pool, encode)

    def fewest_tokens(self, text: str) -> int:
        """How many tokens a text has at least; 0 where that cannot be told from its length."""
        if not self._keeps_every_byte:
            return 0
        longest, unknown = self._token_bytes_bounds
        return -(-len(text.encode().translate(None, unknown)) // longest)

    def mentions_control_token(self, text: str) -> bool:
        """Whether a control token would be recognised somewhere in a text."""
        return self._control_pattern.search(text) is not None

    def trimmed(self, text: str, before: str, after: str) -> str:
        """Return a text without the blanks that the added tokens on its two sides swallow."""
        left, right = self._added.get(before), self._added.get(after)
        text = text.lstrip() if left is not None and left.rstrip else text
        return text.rstrip() if right is not None and right.lstrip else text

    def token_id(self, text: str) -> int | None:
        """Return the id of the added token that reads exactly so, such as an end marker; None if there is none."""
        return self._added_ids.get(text)

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """The added tokens, special or not, that are more than writing: typed by a user they are text."""
        return tuple(
            text for text, token_id in self._added_ids.items() if token_id in self.special_ids or not _is_writing(text)
        )

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The special tokens by their text."""
        return {text: token_id for text, token_id in self._added_ids.items() if token_id in self.special_ids}

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for in the middle of a text; none for ids that the vocabulary lacks."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = _spell(self._backend.id_to_token(token_id) or "", self.spelling)
        return known

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the whole text of some ids, special tokens included."""
        detokenizer = Detokenizer(self)
        return "".join(map(detokenizer.feed, token_ids)) + detokenizer.flush()

    def _encode_within(self, text: str, limit: int, literal: bool) -> list[int]:
        fewest = self.fewest_tokens(text)
        if fewest > limit:
            raise TooManyTokensError(fewest)
        return self.encode(text, literal=literal)

    @cached_property
    def _token_bytes_bounds(self) -> tuple[int, bytes]:
        """The most bytes that one token can stand for, and the bytes that no token stands for: those get lost."""
        vocab = self._backend.get_vocab(with_added_tokens=True)
        unknown = bytes(byte for char, byte in _BYTE_OF.items() if char not in vocab)
        added = (len(text.encode()) for text in self._added_ids)
        return max(0, *map(len, vocab), *added), unknown  # other tokens have a character for each byte

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        return re.compile(any_of(self.control_tokens))

    @cached_property
    def _literal_backend(self) -> Backend:
        config = _without_tokens(json.loads(self._source), frozenset(self.control_tokens))
        backend = Backend.from_str(json.dumps(config))
        backend.no_truncation()
        backend.no_padding()
        return backend


class Detokenizer:
    """Token ids of one answer to text, token by token, in constant time each. Special tokens are text, too.

    `continues_text`: the answer goes on where a text broke off, so a SentencePiece model's first space is the text's
    own and is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, continues_text: bool = False) -> None:
        self._tokenizer = tokenizer
        self._at_start = tokenizer.spelling.strips_first_space and not continues_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def piece(self, token_id: int) -> bytes:
        """Return the bytes that `token_id` adds to the text if it comes next."""
        piece = self._tokenizer.token_bytes(token_id)
        return piece.removeprefix(b" ") if self._at_start else piece

    def feed(self, token_id: int) -> str:
        """Return the text that is complete now: bytes of a character that still lacks some are held back."""
        piece = self.piece(token_id)
        self._at_start = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """End the text; bytes of a character that was never completed become U+FFFD."""
        return self._decoder.decode(b"", final=True)


def _is_writing(token: str) -> bool:
    """Whether an added token that is not special is mere text: blanks, or an HTML tag."""
    return WRITING.fullmatch(token) is not None


def _without_tokens(config: JsonObject, tokens: Set[str]) -> JsonObject:
    """A tokenizer.json in which some tokens are neither recognised in a text nor made by merges.

    Of the other added tokens those stay that the vocabulary itself has: the ids of the rest would change.
    """
    model, added = config["model"], config["added_tokens"]
    assert isinstance(model, dict)
    assert isinstance(added, list)
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        unknown = model.get("unk_token")
        merges = [merge for merge in model["merges"] if tokens.isdisjoint(_merged(merge))]
        kept = {text: token_id for text, token_id in vocab.items() if text not in tokens or text == unknown}
        model = {**model, "vocab": kept, "merges": merges}
    before_words = json.dumps(config.get("pre_tokenizer")).replace(
        '"prepend_scheme": "first"', '"prepend_scheme": "never"'
    )
    return {
        **config,
        "model": model,
        "added_tokens": [token for token in added if token["content"] not in tokens and token["content"] in vocab],
        "pre_tokenizer": json.loads(before_words),
    }


def _merged(merge: str | Sequence[str]) -> tuple[str, str, str]:
    """The two halves of a merge and what they become."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right


def _spelling(config: JsonObject) -> Spelling:
    steps = _decoder_steps(config.get("decoder"))
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return Spelling(byte_level=True)
    replaced = any(_replaces_space_mark(step) for step in steps)
    if "Metaspace" not in kinds and not replaced:
        raise TokenizerError(f"tokenizer.json has a decoder of an unsupported kind: {kinds or None}")
    return Spelling(
        byte_level=False,
        byte_tokens="ByteFallback" in kinds,
        strips_first_space=any(map(_strips_first_space, steps)),
    )


def _keeps_every_byte(config: JsonObject) -> bool:
    """Whether the steps before the vocabulary leave a text as long as it is."""
    steps = json.dumps(config.get("pre_tokenizer"))
    added = config.get("added_tokens")
    strips = any(token.get("lstrip") or token.get("rstrip") for token in (added if isinstance(added, list) else ()))
    return config.get("normalizer") is None and '"Removed"' not in steps and "Whitespace" not in steps and not strips


def _decoder_steps(decoder: object) -> list[JsonObject]:
    """A decoder as the list of its steps; a single one is a list of one."""
    if not isinstance(decoder, Mapping):
        return []
    steps = decoder.get("decoders")
    return [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else [decoder]


def _replaces_space_mark(step: JsonObject) -> bool:
    return step.get("type") == "Replace" and step.get("pattern") == {"String": SPACE_MARK}


def _strips_first_space(step: JsonObject) -> bool:
    if step.get("type") == "Metaspace":
        return step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True) is not False
    return step.get("type") == "Strip" and step.get("content") == " " and step.get("start") == 1


def _spell(token: str, spelling: Spelling) -> bytes:
    if not spelling.byte_level:
        if spelling.byte_tokens and (byte := BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(byte[1])
        return token.replace(SPACE_MARK, " ").encode()
    try:
        return bytes(_BYTE_OF[char] for char in token)
    except KeyError:  # an added token, spelled as it is
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for the characters from 256 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
