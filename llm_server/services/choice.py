"""One choice of an answer on its way back: token outputs to text, stop strings, deltas and log-probabilities."""

from collections import deque
from dataclasses import dataclass, replace

from engines.contract import FinishReason, GenerationRequest, TokenLogprob, TokenOutput
from llm_server.registry import HiddenTokens
from llm_server.stop_strings import StopStrings
from llm_server.tokenizer import Detokenizer
from stylers.output import Delta, OutputParser
from stylers.output import FinishReason as AnswerFinish


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """A token as the client sees it, by its bytes."""

    piece: bytes
    logprob: float
    alternatives: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceUpdate:
    """What is new of one choice. `finish_reason` is set in the last one."""

    index: int
    deltas: list[Delta]
    logprobs: list[TokenPiece]
    finish_reason: AnswerFinish | None = None


class ChoiceReader:
    """Reads the outputs of one sequence; it keeps state between them."""

    def __init__(
        self,
        index: int,
        request: GenerationRequest,
        detokenizer: Detokenizer,
        stops: StopStrings,
        parser: OutputParser,
        hidden: HiddenTokens,
        max_calls: int | None = None,
    ) -> None:
        self.index = index
        self.request = request
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self.finish_reason: AnswerFinish | None = None
        self._detokenizer = detokenizer
        self._stops = stops
        self._parser = parser
        self._hidden = hidden
        self._max_calls = max_calls
        self._saw_hidden = False
        self._with_logprobs = request.sampling.logprobs is not None
        self._pending: deque[tuple[int, TokenPiece]] = deque()  # beginning in the raw text, token
        self._num_chars = 0  # length of the raw text before stop strings
        self._num_released = 0  # and after them

    def read(self, output: TokenOutput) -> ChoiceUpdate:
        """Take the next output. Once `finish_reason` is set the sequence is over, whatever the engine still sends."""
        if output.num_cached_tokens is not None:
            self.num_cached_tokens = output.num_cached_tokens
            self.prompt_logprobs = output.prompt_logprobs
        text = self._text(output)
        if output.finish_reason is not None and self._stops.hit is None:
            text += self._stops.feed(self._detokenizer.flush())
            if self._stops.hit is None:
                text += self._stops.flush()
        deltas = self._parser.feed(text) if text else []
        self._num_released += len(text)
        has_called_enough = self._calls_too_often(deltas)
        if self._stops.hit is not None or has_called_enough or output.finish_reason is not None:
            deltas = self._finish(deltas, output.finish_reason)
        if has_called_enough:
            self.finish_reason = "tool_calls"  # the parser saw a call cut short
            deltas = deltas[: next(index for index, delta in enumerate(deltas) if self._calls_too_often([delta]))]
        if self._saw_hidden:
            deltas = [shown for delta in deltas if (shown := self._without_hidden(delta)) is not None]
        return ChoiceUpdate(self.index, deltas, self._released_logprobs(), self.finish_reason)

    def _calls_too_often(self, deltas: list[Delta]) -> bool:
        """Whether a call begins that is one too many: the answer ends before it."""
        limit = self._max_calls
        return limit is not None and any(call.index >= limit for delta in deltas for call in delta.tool_calls)

    def _text(self, output: TokenOutput) -> str:
        """The text that the new tokens let out; nothing after a stop string counts as generated."""
        pieces = []
        for position, token_id in enumerate(output.token_ids):
            self.num_tokens += 1
            if token_id in self.request.stop_token_ids:
                break  # the end token is counted, and leaves neither text nor log-probability
            if token_id in self._hidden.ids:
                self._saw_hidden = True
            elif self._with_logprobs:
                self._note_logprob(output.logprobs[position])
            text = self._detokenizer.feed(token_id)
            self._num_chars += len(text)
            may_stop = self.num_tokens > self.request.sampling.min_tokens
            pieces.append(self._stops.feed(text) if may_stop else text)
            if self._stops.hit is not None:
                break
        return "".join(pieces)

    def _finish(self, deltas: list[Delta], engine_finish: FinishReason | None) -> list[Delta]:
        cut_short = self._stops.hit is None and engine_finish is FinishReason.LENGTH
        deltas = [*deltas, *self._parser.flush("length" if cut_short else "stop")]
        self.finish_reason = self._parser.finish_reason
        return deltas

    def _without_hidden(self, delta: Delta) -> Delta | None:
        """The delta without special tokens that the parser did not read; None if nothing else is in it."""
        content = self._hidden.removed_from(delta.content) if delta.content else None
        reasoning = self._hidden.removed_from(delta.reasoning) if delta.reasoning else None
        shown = replace(delta, content=content or None, reasoning=reasoning or None)
        return shown if content or reasoning or delta.tool_calls else None

    def _note_logprob(self, entry: TokenLogprob) -> None:
        piece = self._detokenizer.piece(entry.token_id)
        alternatives = tuple((self._detokenizer.piece(i), logprob) for i, logprob in entry.alternatives)
        self._pending.append((self._num_chars, TokenPiece(piece, entry.logprob, alternatives)))

    def _released_logprobs(self) -> list[TokenPiece]:
        """The tokens whose text has begun to go out; those behind a stop string never do."""
        released = []
        over = self.finish_reason is not None and self._stops.hit is None
        while self._pending and (over or self._pending[0][0] < self._num_released):
            released.append(self._pending.popleft()[1])
        return released
