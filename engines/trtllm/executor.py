"""The contract over TensorRT-LLM: everything happens on the event loop; its workers are processes of their own.

Waiting happens here, never in the engine: at most max_batch_size requests are submitted, the next one when a slot is
free. TensorRT-LLM 1.2 drops a request that is aborted while it waits without a word, and knows no priorities.

A task per running sequence reads its responses until the last, also when nobody wants them any more: an aborted request
keeps its slot until it says so, or until DRAIN_S have passed.
"""

import asyncio
import heapq
import logging
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from engines.config import EngineConfig
from engines.contract import ExecutorInfo, ExecutorStats, GenerationRequest, Guide, SamplingParams, TokenOutput
from engines.errors import EngineDeadError, EngineError, OverloadedError, StepFailedError, TimedOutError
from engines.folder import EngineFolder
from engines.guides import GuideCompiler
from engines.stream import OutputStream
from engines.trtllm.driver import STATS_PAUSE_S, Driver, Generation
from engines.trtllm.stats import Stats
from engines.trtllm.support import Refusals
from engines.validation import check_request

log = logging.getLogger(__name__)

DRAIN_S = 2.0
"""How long an aborted request may take to say that it is over."""
WARM_UP_S = 600.0
"""How long the first token of all may take."""
WATCH_S = 1.0
"""How often the workers are looked after."""
STALL_S = 120.0
"""How long nothing may be heard of an engine that has work. A loop of TensorRT-LLM that died says nothing, and its
process lives on; no step takes as long, and each one reports."""
DEAD_SHUTDOWN_S = 3.0
"""How long the shutdown of an engine that has died may take."""
EXIT_GRACE_S = 3.0
"""How long the process may live on after TensorRT-LLM failed to shut down."""


@dataclass(slots=True, order=True)
class Sequence:
    """A request on its way; in order of priority, then of arrival."""

    sort_key: tuple[int, int]
    request: GenerationRequest = field(compare=False)
    stream: OutputStream = field(compare=False, default_factory=OutputStream)
    generation: Generation | None = field(compare=False, default=None)
    """Once it is submitted."""
    task: asyncio.Task[None] | None = field(compare=False, default=None)
    timer: asyncio.TimerHandle | None = field(compare=False, default=None)
    """Of its deadline."""


class TRTLLMExecutor:
    """In-flight batching on NVIDIA GPUs. Satisfies `engines.contract.Executor`."""

    def __init__(
        self,
        driver: Driver,
        info: ExecutorInfo,
        refusals: Refusals,
        guides: GuideCompiler,
        shutdown_timeout_s: float = 30.0,
        on_hang: Callable[[], None] | None = None,
    ) -> None:
        self._driver = driver
        self._info = info
        self._refusals = refusals
        self._guides = guides
        self._shutdown_timeout_s = shutdown_timeout_s
        self._on_hang = on_hang or _exit_soon
        self._stats = Stats()
        self._live: dict[str, Sequence] = {}  # what somebody still reads, waiting or running
        self._waiting: list[Sequence] = []  # a heap
        self._running: set[asyncio.Task[None]] = set()  # one task per slot of the engine
        self._num_arrived = 0
        self._has_news = asyncio.Event()  # something was submitted: statistics flow again
        self._keepers: tuple[asyncio.Task[None], ...] = ()
        self._silent_s = 0.0  # how long nothing was heard while there was work
        self._death: EngineDeadError | None = None
        self._is_shut_down = False

    @classmethod
    def load(cls, folder: EngineFolder, config: EngineConfig) -> "TRTLLMExecutor":
        """Start TensorRT-LLM and its workers. Blocking, for minutes; not on a running event loop.

        Raises TensorRTLLMError.
        """
        from engines.trtllm.loading import load_parts  # here: it is the way to tensorrt_llm

        parts = load_parts(folder, config)
        timeout_s = config.trtllm.shutdown_timeout_s
        return cls(parts.driver, parts.info, parts.refusals, parts.guides, shutdown_timeout_s=timeout_s)

    @property
    def info(self) -> ExecutorInfo:
        """What is fixed for the executor's life; `start` measures num_blocks, which is 0 before."""
        return self._info

    @property
    def is_alive(self) -> bool:
        """Whether requests are served."""
        return bool(self._keepers) and self._death is None

    async def start(self) -> None:
        """Generate one token with each adapter, and learn the KV cache's size on the way. Raises EngineDeadError."""
        assert not self._keepers, "an executor starts once"
        try:
            async with asyncio.timeout(WARM_UP_S):
                self._info = replace(self._info, num_blocks=await self._warm_up())
        except Exception as exc:
            raise EngineDeadError(f"TensorRT-LLM cannot generate a token: {exc or type(exc).__name__}") from exc
        self._keepers = (asyncio.create_task(self._follow_stats()), asyncio.create_task(self._watch()))

    def submit(self, request: GenerationRequest) -> AsyncIterator[TokenOutput]:
        """Check and queue a request; see the contract."""
        if not self.is_alive:
            raise self._death or EngineDeadError("the engine has not been started")
        self._refusals.check(request)  # first, for it knows why
        check_request(request, self._info)
        if request.guide is not None:
            self._guides.matcher(request.guide)
        assert request.seq_id not in self._live, f"seq_id {request.seq_id} is live already"
        if len(self._live) >= self._info.max_batch_size + self._info.max_waiting:
            raise OverloadedError(f"{len(self._live)} sequences are running or waiting; try again later")
        self._num_arrived += 1
        sequence = Sequence((request.priority, self._num_arrived), request)
        self._live[request.seq_id] = sequence
        heapq.heappush(self._waiting, sequence)
        # Not at once: what is taken back in the same breath, because another choice was refused, costs no slot.
        asyncio.get_running_loop().call_soon(self._admit)
        if request.timeout_s is not None:
            sequence.timer = asyncio.get_running_loop().call_later(request.timeout_s, self._time_out, sequence)
        return sequence.stream

    def cancel(self, seq_id: str) -> None:
        """Forget a sequence at once; if it runs, its slot is free within a step or two. Idempotent."""
        sequence = self._live.get(seq_id)
        if sequence is not None:
            sequence.stream.close()
            self._drop(sequence)

    async def compile(self, guide: Guide) -> None:
        """Compile a guide off the loop. Raises GuideError."""
        await self._guides.prepare(guide)

    def stats(self) -> ExecutorStats:
        """Return the newest counts and what the newest step reported."""
        return self._stats.snapshot(len(self._running), len(self._waiting))

    async def shutdown(self) -> None:
        """Fail what is left and stop TensorRT-LLM, as far as it lets itself be stopped. Idempotent."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        # A dead engine is not worth a long wait.
        timeout_s = self._shutdown_timeout_s if self._death is None else min(self._shutdown_timeout_s, DEAD_SHUTDOWN_S)
        self._die(EngineDeadError("the engine was shut down"))
        for task in (*self._keepers, *self._running):
            task.cancel()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Exception | None] = loop.create_future()

        def tell(failure: Exception | None) -> None:
            if not outcome.done():
                outcome.set_result(failure)

        def then(failure: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, failure)

        self._driver.shutdown(then)
        try:
            failure = await asyncio.wait_for(outcome, timeout_s)
        except TimeoutError:
            log.critical("TensorRT-LLM did not shut down within %g s", timeout_s)
            self._on_hang()
        else:
            if failure is not None:
                log.error("TensorRT-LLM failed to shut down", exc_info=failure)

    def _time_out(self, sequence: Sequence) -> None:
        if self._is_live(sequence):
            sequence.stream.put(TimedOutError())
            self._drop(sequence)

    def _forget(self, sequence: Sequence) -> None:
        del self._live[sequence.request.seq_id]
        if sequence.timer is not None:
            sequence.timer.cancel()

    def _drop(self, sequence: Sequence) -> None:
        self._forget(sequence)
        if sequence.task is None:
            self._waiting.remove(sequence)
            heapq.heapify(self._waiting)
        else:
            self._abort(sequence)

    def _admit(self) -> None:
        """Submit what waits, as far as slots are free."""
        while self._waiting and self._death is None and len(self._running) < self._info.max_batch_size:
            self._launch(heapq.heappop(self._waiting))

    def _launch(self, sequence: Sequence) -> None:
        request = sequence.request
        # Prompt tokens out of the cache have no logits: a salt of its own keeps the request from using it.
        salt = request.cache_salt if request.sampling.prompt_logprobs is None else secrets.token_hex(16)
        try:
            generation = sequence.generation = self._driver.generate(request, salt)
        except Exception as exc:  # TensorRT-LLM has no common class for what it refuses, and none for its death
            self._fail(sequence, exc, is_fatal=self._driver.failure() is not None)
            return
        sequence.task = asyncio.create_task(self._read(sequence, generation))
        self._running.add(sequence.task)
        sequence.task.add_done_callback(self._free_slot)
        self._has_news.set()

    def _free_slot(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._admit()

    async def _read(self, sequence: Sequence, generation: Generation) -> None:
        """Hand on the outputs of a sequence, and read on to the end when it is over for us."""
        try:
            async for output in generation:
                self._silent_s = 0.0
                if self._is_live(sequence):
                    self._deliver(sequence, generation, output)
            if self._is_live(sequence):
                raise StepFailedError("TensorRT-LLM ended the sequence without a reason")
        except Exception as exc:
            self._fail(sequence, exc, is_fatal=not isinstance(exc, (EngineError, self._driver.request_error)))
        finally:
            # Leaving the loop does not stop the engine. One that is dead, or shuts down in a thread, is not spoken to.
            if not generation.finished and self._death is None:
                generation.abort()

    def _deliver(self, sequence: Sequence, generation: Generation, output: TokenOutput) -> None:
        sequence.stream.put(output)
        self._stats.count(output, len(sequence.request.prompt_token_ids))
        if output.finish_reason is not None:
            self._forget(sequence)
            if not generation.finished:  # it stopped within the tokens of one response
                self._abort(sequence)

    def _is_live(self, sequence: Sequence) -> bool:
        return self._live.get(sequence.request.seq_id) is sequence

    def _abort(self, sequence: Sequence) -> None:
        assert sequence.generation is not None
        assert sequence.task is not None
        sequence.generation.abort()
        asyncio.get_running_loop().call_later(DRAIN_S, sequence.task.cancel)

    def _fail(self, sequence: Sequence, exc: Exception, *, is_fatal: bool) -> None:
        """End one sequence with an error, or all of them."""
        if is_fatal:
            log.error("TensorRT-LLM is dead", exc_info=exc)
            self._die(EngineDeadError("TensorRT-LLM has failed; see the server's log"))
        elif self._is_live(sequence):
            error = exc if isinstance(exc, EngineError) else StepFailedError(f"TensorRT-LLM: {exc}")
            sequence.stream.put(error)
            self._forget(sequence)

    def _die(self, error: EngineDeadError) -> None:
        self._death = self._death or error
        for sequence in list(self._live.values()):
            sequence.stream.put(self._death)
            self._forget(sequence)
        self._waiting.clear()

    async def _warm_up(self) -> int:
        """Return the number of KV blocks, which the engine tells only once it has worked."""
        request = GenerationRequest("warm-up", (0,), SamplingParams(temperature=0.0), max_tokens=1)
        for adapter in (None, *self._info.adapters):  # one that cannot be loaded ends the engine: better now than later
            async for _ in self._driver.generate(replace(request, adapter=adapter), secrets.token_hex(16)):
                pass
        while True:
            async for step in self._driver.stats():
                self._stats.fold(step)
                if self._stats.num_blocks is not None:
                    return self._stats.num_blocks
            await asyncio.sleep(STATS_PAUSE_S)

    async def _follow_stats(self) -> None:
        """Take all that the engine reports: what nobody takes fills the host's memory."""
        try:
            while True:
                if not self._running:
                    await self._has_news.wait()
                self._has_news.clear()
                async for step in self._driver.stats():
                    self._silent_s = 0.0
                    self._stats.fold(step)
                await asyncio.sleep(STATS_PAUSE_S)
        except Exception:
            log.exception("TensorRT-LLM's statistics broke off")

    async def _watch(self) -> None:
        """Notice the death of the engine also while nothing is asked of it."""
        while self._death is None:
            await asyncio.sleep(WATCH_S)
            reason = self._driver.failure() or self._stall()
            if reason is not None and self._death is None:
                log.error("%s", reason)
                self._die(EngineDeadError(reason))

    def _stall(self) -> str | None:
        """Count the silence in looks rather than by a clock: a machine that was asleep has not stalled."""
        if self._running:
            self._silent_s += WATCH_S
        return f"TensorRT-LLM has been silent for {STALL_S:g} s" if self._silent_s > STALL_S else None


def _exit_soon() -> None:
    """End the process once it had time to answer: TensorRT-LLM's hooks would keep the interpreter from ending."""
    timer = threading.Timer(EXIT_GRACE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()
