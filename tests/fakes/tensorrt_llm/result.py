"""RequestOutput: one object per request, changed in place by each response that the consumer takes in."""

import asyncio
import queue
from collections.abc import AsyncIterator, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .executor.utils import RequestError
from .sampling_params import SamplingParams
from .tensor import Tensor

Finish = Literal["END_ID", "STOP_WORDS", "LENGTH", "CANCELLED"]


@dataclass(frozen=True)
class Logprob:
    logprob: float
    rank: int | None = None


@dataclass
class Response:
    """What the worker sends: new tokens of one sequence, or an error."""

    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish: Finish | None = None
    is_final: bool = False
    cached_tokens: int = 0
    context_logits: Tensor | None = None
    generation_logits: Tensor | None = None
    prompt_logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    error: str | None = None
    fatal: Exception | None = None


@dataclass(slots=True)
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    generation_logits: Tensor | None = None
    _last_text_len: int = 0
    _last_token_ids_len: int = 0
    _last_logprobs_len: int = 0

    @property
    def length(self) -> int:
        return len(self.token_ids)

    @property
    def text_diff(self) -> str:
        return self.text[self._last_text_len :]

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._last_token_ids_len :]

    @property
    def logprobs_diff(self) -> list[dict[int, Logprob]]:
        return self.logprobs[self._last_logprobs_len :]


class MixedSyncAsyncAPIError(Exception):
    """A queue was read synchronously before it was read asynchronously."""


class AsyncQueue:
    """Filled by the dispatch thread, read on the loop it was made on, or on none."""

    MixedSyncAsyncAPIError = MixedSyncAsyncAPIError

    def __init__(self) -> None:
        self.loop = _running_loop()
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.event = asyncio.Event()
        self.is_tainted = False

    async def get(self, timeout: float | None = None) -> Any:
        if self.is_tainted:
            raise MixedSyncAsyncAPIError("the queue was read synchronously before")
        while self.items.empty():
            self.event.clear()
            async with asyncio.timeout(timeout):
                await self.event.wait()
        return self.items.get()

    def get_sync(self, timeout: float | None = None) -> Any:
        self.is_tainted = True
        return self.items.get(timeout=timeout)


class IterationResult:
    """The only stream of statistics: a silence as long as the timeout ends it until something is submitted."""

    def __init__(self) -> None:
        self.queue = AsyncQueue()
        self._done = False
        self._timeout: float | None = 2

    def set_timeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def mark_undone(self) -> None:
        self._done = False

    def get_results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not self._done:
            try:
                found.append(self.queue.get_sync(self._timeout))
            except queue.Empty:
                self._done = True
        return found

    def __aiter__(self) -> "IterationResult":
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._done:
            raise StopAsyncIteration
        try:
            item: dict[str, Any] = await self.queue.get(self._timeout)
        except TimeoutError:
            self._done = True
            raise StopAsyncIteration from None
        return item


async def nothing() -> AsyncIterator[dict[str, Any]]:
    """No statistics, before the first request."""
    if False:
        yield {}


def dispatch(batch: list[tuple[AsyncQueue, Any]]) -> None:
    """Deliver responses; the loop of the first queue is told to wake everybody, whatever their loops."""
    for target, item in batch:
        target.items.put(item)
    loops = [target.loop for target, _ in batch if target.loop is not None]
    if loops and not loops[0].is_closed():
        loops[0].call_soon_threadsafe(_wake, [target.event for target, _ in batch])


def _wake(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()


class RequestOutput:
    def __init__(self, llm: Any, request_id: int, prompt_token_ids: list[int], params: SamplingParams) -> None:
        self._llm = llm
        self._params = params
        self._aborted = False
        self.queue = AsyncQueue()
        self.request_id = request_id
        self.prompt: str | None = None
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput(index) for index in range(params.n)]
        self.finished = False
        self.cached_tokens = 0
        self.context_logits: Tensor | None = None
        self.metrics_dict: Mapping[str, float] = {}

    def abort(self) -> None:
        self._aborted = True
        self._llm._executor.abort(self.request_id)

    def aborted(self) -> bool:
        return self._aborted

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        if self.finished:
            raise StopAsyncIteration
        assert self.queue.loop is not None, "the request was submitted outside of an event loop"
        self._handle(await self.queue.get())
        return self

    async def aresult(self) -> "RequestOutput":
        assert self.queue.loop is not None, "the request was submitted outside of an event loop"
        while not self.finished:
            self._handle(await self.queue.get())
        return self

    def __await__(self) -> Generator[Any, None, "RequestOutput"]:
        return self.aresult().__await__()

    def result(self, timeout: float | None = None) -> "RequestOutput":
        while not self.finished:
            self._handle(self.queue.get_sync())
        return self

    def _handle(self, response: Response) -> None:
        if response.fatal is not None:
            self._llm.shutdown()
            raise response.fatal
        if response.error is not None:
            raise RequestError(response.error)
        self.cached_tokens = response.cached_tokens
        if response.context_logits is not None:
            self.context_logits = response.context_logits
        self.finished = response.is_final
        self._extend(self.outputs[response.index], response)

    def _extend(self, output: CompletionOutput, response: Response) -> None:
        output._last_text_len, output._last_token_ids_len = len(output.text), len(output.token_ids)
        output._last_logprobs_len = len(output.logprobs)
        output.token_ids.extend(response.token_ids)
        output.logprobs.extend(response.logprobs)
        output.prompt_logprobs = response.prompt_logprobs or output.prompt_logprobs
        output.generation_logits = response.generation_logits
        if response.finish == "CANCELLED":
            output.finish_reason = "cancelled"
        elif response.is_final:
            self._finish(output, response)
        if self._params.detokenize and self._llm._tokenizer is not None:
            output.text = self._llm._tokenizer.decode(output.token_ids)
            self._stop_at_text(output)

    def _finish(self, output: CompletionOutput, response: Response) -> None:
        if response.finish == "END_ID":
            output.finish_reason = "stop"
        elif response.finish == "LENGTH":
            output.finish_reason = "length"
        elif response.finish == "STOP_WORDS":
            output.finish_reason = "stop"
            for reason, word in self._llm._stop_words(self._params):
                if output.token_ids[-len(word) :] == word:
                    output.stop_reason = reason
                    if not self._params.include_stop_str_in_output:
                        del output.token_ids[-len(word) :]
                        output._last_token_ids_len = min(output._last_token_ids_len, len(output.token_ids))
                    break

    def _stop_at_text(self, output: CompletionOutput) -> None:
        """A stop string in the text ends the whole request at once; token_ids stay as they are."""
        stops = [self._params.stop] if isinstance(self._params.stop, str) else self._params.stop or []
        for stop in stops:
            if (at := output.text.find(stop)) >= 0:
                output.text = output.text[: at + len(stop) * self._params.include_stop_str_in_output]
                output.finish_reason, output.stop_reason = "stop", stop
                self.abort()
                self.finished = True
                return


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
