"""Running an executor for the time of one story."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engines import Executor

AnyExecutor = TypeVar("AnyExecutor", bound=Executor)


def tell(executor: AnyExecutor, story: Callable[[AnyExecutor], Awaitable[None]]) -> None:
    """Start an executor, tell it a story, and shut it down."""

    async def live() -> None:
        await executor.start()
        try:
            await story(executor)
        finally:
            await executor.shutdown()

    asyncio.run(live())
