"""Small vocabularies of both kinds GGUF files have, complete enough to encode any text."""

from dataclasses import dataclass
from string import ascii_lowercase

import gguf
from gguf import TokenType
from tokenizers.pre_tokenizers import ByteLevel

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "o n", "Ġ a", "a n", "n d", "an d", "Ġa nd", "l l", "he ll", "hell o")
_PIECES = ("▁t", "he", "▁the", "in", "er", "on", "▁a", "nd", "▁and", "ll", "hell", "hello", "▁hello")


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """Tokens by id with their types; merges for the kind "gpt2", scores for the kind "llama"."""

    kind: str
    pre_tokenizer: str
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    merges: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    def write(self, writer: gguf.GGUFWriter) -> None:
        """Add the vocabulary and a ChatML template to a GGUF file."""
        writer.add_tokenizer_model(self.kind)
        writer.add_tokenizer_pre(self.pre_tokenizer)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.merges:
            writer.add_token_merges(self.merges)
        if self.scores:
            writer.add_token_scores(self.scores)
            writer.add_unk_token_id(self.tokens.index("<unk>"))
        writer.add_bos_token_id(self.tokens.index("<|im_start|>"))
        writer.add_eos_token_id(self.tokens.index("<|im_end|>"))
        writer.add_pad_token_id(self.tokens.index("<|im_end|>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(CHAT_TEMPLATE)


def byte_pair_vocabulary(pre_tokenizer: str = "smollm") -> TinyVocabulary:
    """Special tokens, the 256 bytes, what the merges make of them, and one user-defined token."""
    merged = [merge.replace(" ", "") for merge in _MERGES]
    plain = [*sorted(ByteLevel.alphabet()), *merged]
    types = [TokenType.CONTROL] * len(SPECIAL_TOKENS) + [TokenType.NORMAL] * len(plain) + [TokenType.USER_DEFINED]
    return TinyVocabulary("gpt2", pre_tokenizer, (*SPECIAL_TOKENS, *plain, "<tool>"), tuple(types), merges=_MERGES)


def sentence_piece_vocabulary() -> TinyVocabulary:
    """The unknown token, special tokens, the 256 bytes as fallback, letters and a few pieces of decreasing score."""
    bytes_, letters = [f"<0x{byte:02X}>" for byte in range(256)], ["▁", *ascii_lowercase]
    types = [TokenType.UNKNOWN] + [TokenType.CONTROL] * len(SPECIAL_TOKENS) + [TokenType.BYTE] * len(bytes_)
    types += [TokenType.NORMAL] * (len(_PIECES) + len(letters))
    tokens = ("<unk>", *SPECIAL_TOKENS, *bytes_, *_PIECES, *letters)
    return TinyVocabulary("llama", "default", tokens, tuple(types), scores=tuple(-float(i) for i in range(len(tokens))))
