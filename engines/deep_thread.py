"""A thread with room for deep recursion, for code that knows no limit of its own and dies of a full stack."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

STACK_BYTES = 256 * 1024 * 1024  # of address space: memory is taken only as far as the recursion goes

T = TypeVar("T")


def run_deep(work: Callable[[], T]) -> "asyncio.Future[T]":
    """Run `work` in a thread of its own. The thread ends with `work`, or with the process, whoever still waits."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as exc:  # it is raised where the future is awaited
            future.set_exception(exc)
        else:
            future.set_result(result)

    future.set_running_or_notify_cancel()  # from here on it is not cancelled: the thread goes on anyway
    previous = threading.stack_size(STACK_BYTES)
    try:
        threading.Thread(target=run, name="deep", daemon=True).start()
    finally:
        threading.stack_size(previous)
    return asyncio.wrap_future(future)
