"""Log-probabilities in OpenAI's shape for chats."""

from collections.abc import Sequence

from llm_server.services.choice import TokenPiece


def logprobs_json(pieces: Sequence[TokenPiece]) -> dict[str, object]:
    """Return `{"content": [...]}` with an entry per token. A piece that is not whole characters shows U+FFFD."""
    return {"content": [_entry(piece) for piece in pieces], "refusal": None}


def _entry(token: TokenPiece) -> dict[str, object]:
    alternatives = [_token(piece, logprob) for piece, logprob in token.alternatives]
    return {**_token(token.piece, token.logprob), "top_logprobs": alternatives}


def _token(piece: bytes, logprob: float) -> dict[str, object]:
    return {"token": piece.decode(errors="replace"), "logprob": logprob, "bytes": list(piece)}
