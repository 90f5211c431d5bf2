"""The masks of guided sequences, filled by a thread of their own while the model computes the logits of the step.

A grammar can be such that a single mask takes minutes, and nothing stops that. Its sequence is given up then, the
thread is left to it, and another fills the masks that are still to come.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import Protocol

log = logging.getLogger(__name__)

TIMEOUT_S = 0.5
"""How long one mask may take once the logits are there, to twice that."""

MAX_LOST_THREADS = 2
"""While so many threads are lost to masks without end, there are no new guided sequences: each takes a core."""


class Fillable(Protocol):
    """What the filler needs of a matcher."""

    def fill(self) -> None:
        """Fill the mask."""
        ...

    def give_up(self, reason: str) -> None:
        """Note that the mask will not be there."""
        ...


class MaskFiller:
    """Fills masks. `begin` and `wait` are called in turns, by one thread."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._worker = Worker()
        self._lost: list[Worker] = []

    @property
    def is_overrun(self) -> bool:
        """Whether as many threads are lost as may be. From any thread."""
        return sum(worker.is_alive() for worker in self._lost) >= MAX_LOST_THREADS

    def begin(self, matchers: Iterable[Fillable]) -> None:
        """Fill the masks of matchers that nobody else touches until `wait`."""
        self._worker.give(matchers)

    def wait(self) -> None:
        """Wait until each mask is filled or given up."""
        seen = None
        while not self._worker.is_idle.wait(self._timeout_s):
            if seen is not None and (rest := self._worker.leave(seen)) is not None:
                self._replace_worker(seen, rest)
            seen = self._worker.current

    def close(self) -> None:
        """Let the thread go."""
        self._worker.leave(None)

    def _replace_worker(self, endless: Fillable, rest: list[Fillable]) -> None:
        log.warning("a guide takes over %g s for one token; its sequence is over", self._timeout_s)
        endless.give_up("it takes too long to find the next token")
        self._lost = [worker for worker in (*self._lost, self._worker) if worker.is_alive()]
        self._worker = Worker()
        self._worker.give(rest)


class Worker:
    """A thread that fills masks until it is left. It starts with the first of them."""

    def __init__(self) -> None:
        self.is_idle = threading.Event()
        self.is_idle.set()
        self.current: Fillable | None = None
        self._todo: deque[Fillable] = deque()
        self._has_news = threading.Condition()
        self._is_left = False
        self._thread: threading.Thread | None = None

    def is_alive(self) -> bool:
        """Whether the thread is still there."""
        return self._thread is not None and self._thread.is_alive()

    def give(self, matchers: Iterable[Fillable]) -> None:
        """Add masks to fill."""
        with self._has_news:
            self._todo.extend(matchers)
            if not self._todo:
                return
            self.is_idle.clear()
            self._has_news.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="masks", daemon=True)
            self._thread.start()

    def leave(self, current: Fillable | None) -> list[Fillable] | None:
        """Let the thread end after `current`, and return what it has not begun; None if it is at another one."""
        with self._has_news:
            if self.current is not current:
                return None
            rest = list(self._todo)
            self._todo.clear()
            self._is_left = True
            self._has_news.notify()
        return rest

    def _run(self) -> None:
        while (matcher := self._next()) is not None:
            try:
                matcher.fill()
            except Exception as exc:  # an error of the parser's own; the sequence alone shall suffer
                log.exception("a mask could not be filled")
                matcher.give_up(f"the parser failed: {exc}")

    def _next(self) -> Fillable | None:
        with self._has_news:
            self.current = None
            while not self._todo and not self._is_left:
                self.is_idle.set()
                self._has_news.wait()
            if self._todo:
                self.current = self._todo.popleft()
            return self.current
