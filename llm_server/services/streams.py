"""The outputs of several sequences as one stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from engines.contract import TokenOutput


class Outputs(Protocol):
    """Pairs of (index of the sequence, output), as they come."""

    async def __anext__(self) -> tuple[int, TokenOutput]:
        """Return the next pair. Raises StopAsyncIteration at the end, and what the sequences raise."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


def interleave(streams: Sequence[AsyncIterator[TokenOutput]]) -> Outputs:
    """Read one sequence directly, several by a task each."""
    return _Single(streams[0]) if len(streams) == 1 else _Interleaved(streams)


class _Single:
    def __init__(self, stream: AsyncIterator[TokenOutput]) -> None:
        self._stream = stream

    async def __anext__(self) -> tuple[int, TokenOutput]:
        return 0, await self._stream.__anext__()

    def close(self) -> None:
        pass


class _Interleaved:
    def __init__(self, streams: Sequence[AsyncIterator[TokenOutput]]) -> None:
        self._queue: asyncio.Queue[tuple[int, TokenOutput] | Exception | None] = asyncio.Queue()
        self._num_open = len(streams)
        self._tasks = [asyncio.create_task(self._pump(index, stream)) for index, stream in enumerate(streams)]

    async def __anext__(self) -> tuple[int, TokenOutput]:
        while self._num_open:
            item = await self._queue.get()
            if isinstance(item, tuple):
                return item
            if item is not None:
                raise item
            self._num_open -= 1
        raise StopAsyncIteration

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pump(self, index: int, stream: AsyncIterator[TokenOutput]) -> None:
        try:
            async for output in stream:
                self._queue.put_nowait((index, output))
        except Exception as exc:  # whatever it is, it is raised where the outputs are read
            self._queue.put_nowait(exc)
        else:
            self._queue.put_nowait(None)
