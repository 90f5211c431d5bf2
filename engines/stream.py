"""A sequence's mailbox between an executor and whoever reads its outputs."""

import asyncio
from collections.abc import AsyncIterator

from engines.contract import TokenOutput
from engines.errors import EngineError


class OutputStream:
    """A sequence's mailbox on the event loop. A reader that lags gets what has gathered as one output."""

    def __init__(self) -> None:
        self._unread: TokenOutput | None = None
        self._error: EngineError | None = None
        self._is_over = False
        self._ready = asyncio.Event()

    def put(self, output: TokenOutput | EngineError) -> None:
        """Add an output, or the error that ends the stream."""
        if isinstance(output, EngineError):
            self._error = output
            self._is_over = True
        else:
            self._unread = output if self._unread is None else merge(self._unread, output)
            self._is_over = output.finish_reason is not None
        self._ready.set()

    def close(self) -> None:
        """End the stream without an error."""
        self._is_over = True
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[TokenOutput]:
        return self

    async def __anext__(self) -> TokenOutput:
        if not self._is_over:
            await self._ready.wait()
        self._ready.clear()
        if self._unread is not None:
            output, self._unread = self._unread, None
            return output
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration


def merge(first: TokenOutput, second: TokenOutput) -> TokenOutput:
    """Join two outputs of a sequence that follow each other."""
    return TokenOutput(
        first.token_ids + second.token_ids,
        second.finish_reason,
        first.logprobs + second.logprobs,
        first.num_cached_tokens,
        first.prompt_logprobs,
    )
