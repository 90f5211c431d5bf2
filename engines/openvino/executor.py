"""The contract over OpenVINO: one engine thread that owns the core, one deque into it, one wake-up per step out of it.

`submit` and `cancel` run on the event loop: they check, append to the deque and wake the thread. The thread empties
the deque before each step and hands all outputs of a step to the loop in one `call_soon_threadsafe`.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator

from engines.config import EngineConfig
from engines.contract import ExecutorInfo, ExecutorStats, GenerationRequest, Guide, TokenOutput
from engines.errors import EngineDeadError, EngineError, OverloadedError, UnsupportedFeatureError
from engines.folder import EngineFolder
from engines.guides import GuideCompiler
from engines.openvino.blocks import BlockPool, block_keys
from engines.openvino.core import EngineCore, Outcome
from engines.openvino.policy import POLICIES
from engines.openvino.runner import ModelRunner
from engines.openvino.scheduler import Scheduler
from engines.openvino.sequence import Sequence
from engines.stream import OutputStream
from engines.validation import check_request

log = logging.getLogger(__name__)


class OpenVINOExecutor:
    """In-flight batching on the CPU. Satisfies `engines.contract.Executor`."""

    def __init__(self, core: EngineCore, info: ExecutorInfo, guides: GuideCompiler | None = None) -> None:
        self._core = core
        self._info = info
        self._guides = guides
        self._streams: dict[str, OutputStream] = {}
        self._inbox: deque[Sequence | str] = deque()  # a sequence to add, or the id of one to cancel
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._death: EngineDeadError | None = None
        self._num_arrived = 0
        self._stats = core.stats()

    @classmethod
    def load(cls, folder: EngineFolder, config: EngineConfig) -> "OpenVINOExecutor":
        """Compile the folder's model and allocate the KV cache. Blocking: about a second for a small model."""
        runner = ModelRunner(folder.model_path, config)
        limit = folder.description.max_sequence_length
        info = ExecutorInfo(
            engine="openvino",
            precision=runner.precision,
            vocab_size=runner.vocab_size,
            max_sequence_length=min(limit, config.max_sequence_length or limit),
            max_batch_size=config.max_batch_size,
            max_waiting=config.waiting_limit,
            block_size=runner.layout.block_size,
            num_blocks=runner.num_blocks,
        )
        pool = BlockPool(info.num_blocks)
        policy = POLICIES[config.scheduler_policy]()
        scheduler = Scheduler(pool, info.block_size, config.max_batch_size, config.max_num_tokens, policy)
        guides = GuideCompiler(folder.tokenizer_path, info.vocab_size, folder.description.end_token_ids)
        return cls(EngineCore(runner, scheduler), info, guides)

    @property
    def info(self) -> ExecutorInfo:
        """What is fixed for the executor's life."""
        return self._info

    @property
    def is_alive(self) -> bool:
        """Whether the engine thread serves."""
        return self._thread is not None and self._death is None

    async def start(self) -> None:
        """Start the engine thread and bind it to the running loop."""
        assert self._thread is None, "an executor starts once"
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest) -> AsyncIterator[TokenOutput]:
        """Check and queue a request; see the contract."""
        if not self.is_alive:
            raise self._death or EngineDeadError("the engine has not been started")
        check_request(request, self._info)
        assert request.seq_id not in self._streams, f"seq_id {request.seq_id} is live already"
        if len(self._streams) >= self._info.max_batch_size + self._info.max_waiting:
            raise OverloadedError(f"{len(self._streams)} sequences are running or waiting; try again later")
        if request.guide is not None and self._core.masks.is_overrun:
            raise OverloadedError("guides that come to no end take up the machine; try again later")
        sequence = self._sequence(request)
        stream = self._streams[request.seq_id] = OutputStream()
        self._inbox.append(sequence)
        self._wake.set()
        return stream

    def cancel(self, seq_id: str) -> None:
        """Forget a sequence within one step. Idempotent."""
        stream = self._streams.pop(seq_id, None)
        if stream is not None:
            stream.close()
            self._inbox.append(seq_id)
            self._wake.set()

    async def compile(self, guide: Guide) -> None:
        """Compile a guide off the loop and keep it. Raises GuideError."""
        await self._compiler().prepare(guide)

    def stats(self) -> ExecutorStats:
        """Return the snapshot of the last step."""
        return self._stats

    async def shutdown(self) -> None:
        """Stop the thread after its current step and fail what is left."""
        if self._thread is None:
            return
        self._stopping = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        self._die(EngineDeadError("the engine was shut down"))
        self._core.close()

    def _compiler(self) -> GuideCompiler:
        if self._guides is None:
            raise UnsupportedFeatureError("this engine was loaded without a tokenizer to guide with", "guide")
        return self._guides

    def _sequence(self, request: GenerationRequest) -> Sequence:
        self._num_arrived += 1
        keys = block_keys(request.prompt_token_ids, self._info.block_size, salt=request.cache_salt)
        matcher = self._compiler().matcher(request.guide) if request.guide is not None else None
        return Sequence(request, keys, self._num_arrived, self._info.block_size, matcher)

    def _run(self) -> None:
        """Engine thread: empty the inbox, step, deliver; sleep when there is nothing to do."""
        try:
            while not self._stopping:
                self._wake.clear()
                self._empty_inbox()
                outputs = self._core.step()
                self._stats = self._core.stats()
                if outputs:
                    self._loop.call_soon_threadsafe(self._deliver, outputs)
                if not self._core.scheduler.has_work:
                    self._wake.wait()
        except BaseException:
            log.exception("the engine thread died")
            self._loop.call_soon_threadsafe(self._die, EngineDeadError("the engine died; see the server's log"))

    def _empty_inbox(self) -> None:
        while self._inbox:
            message = self._inbox.popleft()
            if isinstance(message, Sequence):
                self._core.scheduler.add(message)
            else:
                self._core.scheduler.cancel(message)

    def _deliver(self, outputs: list[Outcome]) -> None:
        for seq_id, output in outputs:
            stream = self._streams.get(seq_id)
            if stream is None:
                continue  # cancelled while the step ran
            stream.put(output)
            if isinstance(output, EngineError) or output.finish_reason is not None:
                del self._streams[seq_id]

    def _die(self, error: EngineDeadError) -> None:
        self._death = self._death or error
        for stream in self._streams.values():
            stream.put(self._death)
        self._streams.clear()
