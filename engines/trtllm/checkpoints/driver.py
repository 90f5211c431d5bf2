"""The calls into one `tensorrt_llm.LLM`, and all that is used of its insides.

TensorRT-LLM 1.2 has no health check: whether its workers live is read from `_executor`, the proxy in front of them.
Source: llmapi/llm.py, executor/proxy.py and executor/result.py, release 1.2.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from engines.contract import GenerationRequest, TokenOutput
from engines.trtllm.checkpoints.sampling import SamplingTranslator
from engines.trtllm.driver import in_a_thread
from engines.trtllm.outputs import Arrival, OutputBuilder

UNFINISHED = "not_finished"


class CheckpointGeneration:
    """A `RequestOutput`: one object that changes in place with every response, so each is read at once."""

    def __init__(self, result: Any, outputs: OutputBuilder) -> None:
        self._result = result
        self._outputs = outputs
        self._is_aborted = False

    @property
    def finished(self) -> bool:
        """See `Generation`."""
        return bool(self._result.finished)

    def abort(self) -> None:
        """See `Generation`."""
        self._is_aborted = True
        self._result.abort()

    async def __aiter__(self) -> AsyncIterator[TokenOutput]:
        async for result in self._result:
            if self._is_aborted:
                continue
            if (output := self._outputs.build(_arrival(result))) is not None:
                yield output


def _arrival(result: Any) -> Arrival:
    completion = result.outputs[0]
    return Arrival(
        token_ids=completion.token_ids_diff,
        reason=None if completion.finish_reason == UNFINISHED else completion.finish_reason,
        num_cached_tokens=int(result.cached_tokens),
        generation_logits=completion.generation_logits,
        context_logits=result.context_logits,
    )


class CheckpointDriver:
    """A model that TensorRT-LLM's PyTorch backend serves from its checkpoint. Satisfies `driver.Driver`."""

    def __init__(
        self,
        llm: Any,
        translator: SamplingTranslator,
        request_error: type[Exception],
        vocab_size: int,
        lora_requests: Mapping[str, Any],
    ) -> None:
        self._llm = llm
        self._translator = translator
        self._request_error = request_error
        self._vocab_size = vocab_size
        self._lora_requests = lora_requests

    @property
    def request_error(self) -> type[Exception]:
        """TensorRT-LLM's RequestError."""
        return self._request_error

    def generate(self, request: GenerationRequest, cache_salt: str | None) -> CheckpointGeneration:
        """Submit a request. Call on the loop that will read it: the result is bound to it."""
        result = self._llm.generate_async(
            inputs={"prompt_token_ids": list(request.prompt_token_ids)},
            sampling_params=self._translator.translate(request),
            streaming=True,
            lora_request=None if request.adapter is None else self._lora_requests[request.adapter],
            cache_salt=cache_salt,
        )
        return CheckpointGeneration(result, OutputBuilder(request, self._vocab_size))

    def stats(self) -> AsyncIterator[Mapping[str, Any]]:
        """See `Driver`."""
        # With a timeout, a silence of that length would end the only stream there is, until the next submit.
        stream: AsyncIterator[Mapping[str, Any]] = self._llm.get_stats_async(timeout=None)
        return stream

    def failure(self) -> str | None:
        """See `Driver`."""
        proxy = self._llm._executor
        if proxy is None or proxy.is_shutdown():
            return "TensorRT-LLM has shut down"
        # One future per worker that it spawned; under mpirun there are none, and MPI ends the whole job.
        if any(future.done() for future in getattr(proxy, "mpi_futures", None) or ()):
            return "a worker of TensorRT-LLM is gone"
        return None

    def shutdown(self, then: Callable[[Exception | None], None]) -> None:
        """See `Driver`."""
        in_a_thread(self._llm.shutdown, then)
