"""From a styler's Prompt to token ids."""

from collections.abc import Iterable, Iterator

from llm_server.errors import UnsupportedParameterError
from llm_server.tokenizer import Tokenizer
from stylers.prompt import Prompt, TextPiece


async def encode_prompt(prompt: Prompt, tokenizer: Tokenizer, limit: int) -> list[int]:
    """Return the token ids of a prompt, a run of pieces at a time.

    Raises TooManyTokensError for a text that is sure to have more than `limit` tokens.
    """
    token_ids: list[int] = []
    for run in _runs(prompt, tokenizer):
        token_ids += await tokenizer.encode_async(run.text, limit, literal=run.literal)
    return token_ids


def encode_words(words: Iterable[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of words that must not be said: at the start of a text and after a space."""
    spellings = (spelling for word in words if word.strip() for spelling in (word.lstrip(), f" {word.lstrip()}"))
    return tuple(dict.fromkeys(tuple(tokenizer.encode(spelling)) for spelling in spellings))


def _runs(prompt: Prompt, tokenizer: Tokenizer) -> Iterator[TextPiece]:
    """The pieces joined into as few as possible: where a text is cut, its tokens may differ.

    A literal piece stands alone only where something in it would be read as a control token.
    """
    plain: list[str] = []
    for index, piece in enumerate(prompt.pieces):
        if not isinstance(piece, TextPiece):
            raise UnsupportedParameterError("images and videos are not supported by this server", "messages")
        if not piece.literal or not tokenizer.mentions_control_token(piece.text):
            plain.append(piece.text)
            continue
        if plain:
            yield TextPiece("".join(plain))
            plain = []
        sides = ["".join(other.text for other in prompt.pieces[at : at + 1]) for at in (index - 1, index + 1)]
        yield TextPiece(tokenizer.trimmed(piece.text, *sides), literal=True)
    if plain:
        yield TextPiece("".join(plain))
