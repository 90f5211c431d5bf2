"""What the executor needs of TensorRT-LLM, whichever of its two interfaces runs the model.

`checkpoints.driver` is over `tensorrt_llm.LLM`, which serves checkpoints; `prebuilt.driver` is over the C++ executor,
which serves prebuilt engines. Their own objects go no further than the driver.
"""

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from engines.contract import GenerationRequest, TokenOutput

STATS_PAUSE_S = 0.2
"""How long to wait before statistics whose stream has ended are asked for again."""


class Generation(Protocol):
    """A submitted request. Iterate over it once, to the end, also after an abort: it then brings nothing more."""

    @property
    def finished(self) -> bool:
        """Whether TensorRT-LLM has said that it is over; until then it holds a slot."""
        ...

    def abort(self) -> None:
        """Ask for an end, which comes a step or two later. Idempotent."""
        ...

    def __aiter__(self) -> AsyncIterator[TokenOutput]: ...


class Driver(Protocol):
    """One loaded model. All methods but `shutdown`'s `then` are called on the event loop, from its thread."""

    @property
    def request_error(self) -> type[Exception]:
        """The class of errors that concern one request only."""
        ...

    def generate(self, request: GenerationRequest, cache_salt: str | None) -> Generation:
        """Submit a request that `Refusals.check` has passed."""
        ...

    def stats(self) -> AsyncIterator[Mapping[str, Any]]:
        """Return what the engine tells about its steps, each item once. The stream may never end. Needs a request."""
        ...

    def failure(self) -> str | None:
        """Say what is wrong with the engine as a whole, None if it works."""
        ...

    def shutdown(self, then: Callable[[Exception | None], None]) -> None:
        """Shut down in a thread of its own, which may hang for ever, and call `then` in it."""
        ...


def in_a_thread(work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
    """Do what may hang for ever in a thread that nobody waits for, and tell `then` how it went."""

    def run() -> None:
        try:
            work()
        except Exception as exc:  # whatever it is, it must not be lost in a thread
            then(exc)
        else:
            then(None)

    threading.Thread(target=run, name="trtllm-shutdown", daemon=True).start()
