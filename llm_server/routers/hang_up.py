"""A client that leaves: whatever is being done for it stops."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

from fastapi import Request

from llm_server.errors import ClientGoneError

T = TypeVar("T")


async def until_hang_up(request: Request, work: Coroutine[None, None, T]) -> T:
    """Return what `work` returns. If the client hangs up before, cancel it and raise ClientGoneError.

    The request's body must have been read: only then is the next thing to receive the end of the connection.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_hang_up(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for each in (task, gone):
            if not each.done():
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each


async def _wait_for_hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
