"""Serving, draining, over: what a shutdown waits for."""

import asyncio


class Lifecycle:
    """Counts the requests that run and says when the last one is done. Used on the event loop only."""

    def __init__(self) -> None:
        self.is_draining = False
        self.num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """Count a request in."""
        self.num_running += 1
        self._idle.clear()

    def leave(self) -> None:
        """Count it out."""
        self.num_running -= 1
        if not self.num_running:
            self._idle.set()

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing new and wait for what runs; false where some of it still runs after `timeout_s`."""
        self.is_draining = True
        if not self.num_running:
            return True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
