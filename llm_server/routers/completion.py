"""A whole chat answer. Source: OpenAI API reference, "The chat completion object"."""

from collections.abc import Iterable, Sequence

from engines.contract import TokenLogprob
from llm_server.registry import ServedModel
from llm_server.routers.logprobs import logprobs_json
from llm_server.services.choice import ChoiceUpdate, TokenPiece
from llm_server.services.usage import Usage
from llm_server.tokenizer import Tokenizer
from stylers.output import Delta, FinishReason, ParsedMessage, merge


class ChoiceCollector:
    """Gathers the updates of one choice of an answer that is sent whole."""

    def __init__(self, index: int, *, with_logprobs: bool) -> None:
        self.index = index
        self._deltas: list[Delta] = []
        self._logprobs: list[TokenPiece] | None = [] if with_logprobs else None
        self._finish_reason: FinishReason = "stop"

    def add(self, update: ChoiceUpdate) -> None:
        """Take the next update."""
        self._deltas += update.deltas
        if self._logprobs is not None:
            self._logprobs += update.logprobs
        if update.finish_reason is not None:
            self._finish_reason = update.finish_reason

    def to_openai(self, reasoning_field: str) -> dict[str, object]:
        """Return the choice in OpenAI's shape."""
        message = merge(self._deltas, self._finish_reason)
        return {
            "index": self.index,
            "message": _message_json(message, reasoning_field),
            "logprobs": None if self._logprobs is None else logprobs_json(self._logprobs),
            "finish_reason": message.finish_reason,
        }


def completion_json(
    answer_id: str, created: int, model: ServedModel, choices: Iterable[ChoiceCollector], usage: Usage
) -> dict[str, object]:
    """Return the body of an answer."""
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": model.name,
        "choices": [choice.to_openai(model.reasoning_field) for choice in choices],
        "usage": usage.to_openai(),
    }


def prompt_logprobs_json(entries: Sequence[TokenLogprob], tokenizer: Tokenizer) -> list[dict[str, object] | None]:
    """Return log-probabilities of the prompt in vLLM's shape: per token a table by token id, null for the first."""
    return [None, *(_prompt_token_json(entry, tokenizer) for entry in entries)]


def _prompt_token_json(entry: TokenLogprob, tokenizer: Tokenizer) -> dict[str, object]:
    pairs = dict([*entry.alternatives, (entry.token_id, entry.logprob)])
    return {
        str(token_id): {"logprob": logprob, "decoded_token": tokenizer.token_bytes(token_id).decode(errors="replace")}
        for token_id, logprob in pairs.items()
    }


def _message_json(message: ParsedMessage, reasoning_field: str) -> dict[str, object]:
    """Content is null only beside calls; reasoning and calls stand only where there are some."""
    content = message.content if message.content is not None or message.tool_calls else ""
    shown: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
    if message.reasoning is not None:
        shown[reasoning_field] = message.reasoning
    if message.tool_calls:
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return shown
