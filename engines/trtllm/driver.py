"""The calls into one `tensorrt_llm.LLM`, and all that is used of its insides.

TensorRT-LLM 1.2 has no health check: whether its workers live is read from `_executor`, the proxy in front of them.
Source: llmapi/llm.py, executor/proxy.py and executor/result.py, release 1.2.
"""

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from engines.contract import GenerationRequest
from engines.trtllm.sampling import SamplingTranslator

STATS_PAUSE_S = 0.2
"""The stream of statistics ends when nothing came for so long; the next request starts it anew."""


class CheckpointDriver:
    """A model that TensorRT-LLM's PyTorch backend serves from its checkpoint.

    `request_error` is the class of errors that concern one request only.
    """

    def __init__(self, llm: Any, translator: SamplingTranslator, request_error: type[Exception]) -> None:
        self._llm = llm
        self._translator = translator
        self.request_error = request_error

    def generate(self, request: GenerationRequest, cache_salt: str | None) -> Any:
        """Submit a request and return its RequestOutput. Call on the loop that will read it."""
        return self._llm.generate_async(
            inputs={"prompt_token_ids": list(request.prompt_token_ids)},
            sampling_params=self._translator.translate(request),
            streaming=True,
            cache_salt=cache_salt,
        )

    def stats(self) -> AsyncIterator[Mapping[str, Any]]:
        """Return what the engine told about its steps since the last call; each item is delivered once."""
        stream: AsyncIterator[Mapping[str, Any]] = self._llm.get_stats_async(timeout=STATS_PAUSE_S)
        return stream

    def failure(self) -> str | None:
        """Say what is wrong with the engine as a whole, None if it works."""
        proxy = self._llm._executor
        if proxy is None or proxy.is_shutdown():
            return "TensorRT-LLM has shut down"
        # One future per worker that it spawned; under mpirun there are none, and MPI ends the whole job.
        if any(future.done() for future in getattr(proxy, "mpi_futures", None) or ()):
            return "a worker of TensorRT-LLM is gone"
        return None

    def shutdown(self, then: Callable[[Exception | None], None]) -> None:
        """Shut down in a thread of its own, which may hang for ever, and call `then` in it."""

        def run() -> None:
            try:
                self._llm.shutdown()
            except Exception as exc:  # whatever it is, it must not be lost in a thread
                then(exc)
            else:
                then(None)

        threading.Thread(target=run, name="trtllm-shutdown", daemon=True).start()
