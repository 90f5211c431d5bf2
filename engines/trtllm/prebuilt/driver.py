"""The calls into one C++ executor, which runs a prebuilt engine.

It knows no event loop. A thread of ours waits for responses, turns each batch of them into outputs, and wakes the loop
once per batch. Requests are enqueued from the loop: that takes a lock which the executor holds for moments only, and
waits for no step. Source: `Executor::Impl`, cpp/tensorrt_llm/executor/executorImpl.cpp, release 1.2.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

from engines.contract import GenerationRequest, TokenOutput
from engines.errors import EngineError, GuideError, StepFailedError
from engines.trtllm.driver import in_a_thread
from engines.trtllm.outputs import Arrival, OutputBuilder
from engines.trtllm.prebuilt.requests import RequestTranslator, Translated
from engines.trtllm.prebuilt.workers import Workers

log = logging.getLogger(__name__)

POLL = timedelta(milliseconds=100)
"""How long one call waits for responses: a shutdown is noticed within that."""
UNFINISHED = "NOT_FINISHED"
STEP_FAILED = "Encountered an error in forward"
MAX_FAILED_STEPS = 3
"""So many steps that failed in a row mean that the engine is broken: a lost GPU fails each of them, for ever."""

Item = TokenOutput | EngineError | None


class EngineGeneration:
    """A request in the executor. `read` is called in the thread that waits for responses, all else on the loop."""

    def __init__(
        self,
        outputs: OutputBuilder,
        translated: Translated,
        tokens_per_block: int,
        cancel: Callable[[int], None],
    ) -> None:
        self._outputs = outputs
        self._translated = translated  # its tensors must live as long as it runs
        self._tokens_per_block = tokens_per_block
        self._cancel = cancel
        self._inbox: asyncio.Queue[tuple[Item, bool]] = asyncio.Queue()
        self._is_aborted = False
        self._finished = False
        self.request_id: int | None = None
        """The executor's, once it is enqueued."""

    @property
    def finished(self) -> bool:
        """See `Generation`."""
        return self._finished

    def abort(self) -> None:
        """See `Generation`. A final response follows, also for a request that waits in the executor."""
        if not (self._is_aborted or self._finished) and self.request_id is not None:
            self._is_aborted = True
            self._cancel(self.request_id)

    async def __aiter__(self) -> AsyncIterator[TokenOutput]:
        while not self._finished:
            item, self._finished = await self._inbox.get()
            if isinstance(item, EngineError):
                raise item
            if item is not None:
                yield item

    def put(self, item: Item, *, is_final: bool) -> None:
        """Take what `read` made of a response."""
        self._inbox.put_nowait((item, is_final))

    def read(self, response: Any) -> tuple[Item, bool]:
        """Return what a response brought, and whether it is the last one."""
        if response.has_error():
            return StepFailedError(f"TensorRT-LLM: {response.error_msg}"), True
        result = response.result
        if self._is_aborted:
            return None, result.is_final
        edits = self._translated.guide_edits
        if edits is not None and (error := edits.error) is not None:
            return GuideError(f"the guide cannot be followed to its end: {error}", "guide"), result.is_final
        try:
            return self._outputs.build(self._arrival(result)), result.is_final
        except EngineError as exc:
            return exc, result.is_final

    def _arrival(self, result: Any) -> Arrival:
        reason = result.finish_reasons[0].name
        is_first = self._outputs.is_first
        reused = result.request_perf_metrics.kv_cache_metrics.num_reused_blocks if is_first else 0
        return Arrival(
            token_ids=result.output_token_ids[0],
            reason=None if reason == UNFINISHED else reason.lower(),
            num_cached_tokens=reused * self._tokens_per_block,
            generation_logits=result.generation_logits,
            context_logits=result.context_logits if is_first else None,
        )


class EngineDriver:
    """A prebuilt engine. Satisfies `driver.Driver`."""

    def __init__(
        self,
        executor: Any,
        translator: RequestTranslator,
        vocab_size: int,
        tokens_per_block: int,
        workers: Workers | None = None,
    ) -> None:
        self._executor = executor
        self._translator = translator
        self._vocab_size = vocab_size
        self._tokens_per_block = tokens_per_block
        self._workers = workers
        self._client_ids = count(1)
        # Changed on the loop, looked up in the thread: a request is in here before it is enqueued.
        self._generations: dict[int, EngineGeneration] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._num_failed_steps = 0
        self._failure: str | None = None

    @property
    def request_error(self) -> type[Exception]:
        """What a response with an error becomes."""
        return StepFailedError

    def generate(self, request: GenerationRequest, cache_salt: str | None) -> EngineGeneration:
        """Enqueue a request. The first call binds the driver to the running loop."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._wait, args=(loop,), name="trtllm-responses", daemon=True)
            self._thread.start()
        client_id = next(self._client_ids)
        translated = self._translator.translate(request, cache_salt, client_id)
        outputs = OutputBuilder(request, self._vocab_size)
        generation = EngineGeneration(outputs, translated, self._tokens_per_block, self._cancel)
        self._generations[client_id] = generation
        try:
            generation.request_id = self._executor.enqueue_request(translated.request)
        except Exception:
            del self._generations[client_id]
            raise
        return generation

    async def stats(self) -> AsyncIterator[Mapping[str, Any]]:
        """See `Driver`."""
        for step in self._executor.get_latest_iteration_stats():
            yield json.loads(step.to_json_str())

    def failure(self) -> str | None:
        """See `Driver`."""
        if self._failure is not None:
            return self._failure
        if not self._executor.can_enqueue_requests():
            return "TensorRT-LLM has shut down"
        return None if self._workers is None else self._workers.failure()

    def shutdown(self, then: Callable[[Exception | None], None]) -> None:
        """See `Driver`. What still runs is cancelled: TensorRT-LLM would wait for its end."""
        self._is_stopping = True  # from here on the loop calls nothing any more
        in_a_thread(self._stop, then)

    def _stop(self) -> None:
        for generation in list(self._generations.values()):
            if generation.request_id is not None:
                self._executor.cancel_request(generation.request_id)
        if self._thread is not None:
            self._thread.join()
        self._executor.shutdown()

    def _cancel(self, request_id: int) -> None:
        if not self._is_stopping:
            self._executor.cancel_request(request_id)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand batches of responses to the loop until the driver stops."""
        try:
            while not self._is_stopping:
                if responses := self._executor.await_responses(POLL):
                    self._hand_over(responses, loop)
        except Exception as exc:  # without this thread nothing is heard of any request
            log.exception("waiting for responses of TensorRT-LLM failed")
            self._failure = f"waiting for responses of TensorRT-LLM failed: {exc}"

    def _hand_over(self, responses: list[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._watch_steps(responses)
        batch = []
        for response in responses:
            client_id = response.client_id
            if (generation := self._generations.get(client_id)) is not None:
                batch.append((client_id, generation, *generation.read(response)))
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            loop.call_soon_threadsafe(self._deliver, batch)

    def _deliver(self, batch: list[tuple[int, EngineGeneration, Item, bool]]) -> None:
        for client_id, generation, item, is_final in batch:
            if is_final:
                self._generations.pop(client_id, None)
            generation.put(item, is_final=is_final)

    def _watch_steps(self, responses: list[Any]) -> None:
        """A step that fails ends all requests in it with an error each, and the executor goes on."""
        errors = [response.error_msg for response in responses if response.has_error()]
        failed = [error for error in errors if STEP_FAILED in error]
        if len(errors) < len(responses):
            self._num_failed_steps = 0
        elif failed:
            self._num_failed_steps += 1
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                self._failure = f"{self._num_failed_steps} steps of TensorRT-LLM failed in a row: {failed[-1]}"
