"""The C++ executor: a thread that steps through in-flight batches of an engine over a tiny model."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ...kv_cache import KvCache, num_tokens_that_fit
from ...model import TinyModel
from ...samplers import TRTLLMSampler
from ...stage import STAGE
from ...version import __version__
from .configs import CapacitySchedulerPolicy, DecodingMode, ExecutorConfig
from .parallel import Ranks
from .requests import FinishReason, ModelType, Request, Response
from .sequences import Sequence, refusal

CHUNK = 3
"""Most tokens that lookahead gives in a step."""


@dataclass
class IterationStats:
    """Attributes in snake case, and JSON in camel case."""

    iter: int
    iter_latency_ms: float
    document: dict[str, Any]

    def to_json_str(self) -> str:
        return json.dumps(self.document)


@dataclass
class Engine:
    """What config.json says, as far as the executor looks at it."""

    model: dict[str, Any]
    build: dict[str, Any]

    @property
    def plugins(self) -> dict[str, Any]:
        plugins: dict[str, Any] = self.build["plugin_config"]
        return plugins

    @property
    def is_lookahead(self) -> bool:
        return bool(self.build["speculative_decoding_mode"] & 8)

    @property
    def max_draft_len(self) -> int:
        return int(self.build["max_draft_len"]) if self.build["speculative_decoding_mode"] > 1 else 0


class Executor:
    def __init__(self, model_path: str | Path, model_type: ModelType, executor_config: ExecutorConfig) -> None:
        if not isinstance(model_type, ModelType) or not isinstance(executor_config, ExecutorConfig):
            raise TypeError("incompatible constructor arguments")
        folder = Path(model_path)
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.engine = Engine(document["pretrained_config"], document["build_config"])
        self.config = executor_config
        STAGE.arguments.append(executor_config)
        self._check(document["version"])
        self._ranks = Ranks.join(self.engine.model["mapping"], executor_config, folder)
        self.model = TinyModel(self.engine.model["vocab_size"])
        self._sampler = TRTLLMSampler()
        self.cache = self._make_cache()
        self._incoming: deque[Sequence] = deque()
        self._cancelled: set[int] = set()
        self._terminated: set[int] = set()
        self.active: list[Sequence] = []
        self._responses: list[Response] = []
        self._stats: deque[IterationStats] = deque(maxlen=executor_config.iter_stats_max_iterations)
        self._next_id = 1
        self._iter = 0
        self._shutdown_called = False
        self._stopping = False
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="fake-executionLoop", daemon=True)
        if self._ranks.is_leader:
            self._thread.start()

    def _check(self, version: str) -> None:
        if version != __version__:
            raise RuntimeError(f"the engine was built by {version} and cannot be deserialised by {__version__}")
        build, config = self.engine.build, self.config
        if not self.engine.plugins["paged_kv_cache"]:
            raise RuntimeError("in-flight batching needs a paged KV cache")
        if not self.engine.plugins["use_paged_context_fmha"]:
            if config.kv_cache_config.enable_block_reuse:
                raise RuntimeError("KV cache reuse requires paged context FMHA")
            if config.enable_chunked_context:
                raise RuntimeError("chunked context requires paged context FMHA")
        decoding = config.decoding_config
        lookahead = None if decoding is None else decoding.lookahead_decoding_config
        if self.engine.is_lookahead != (lookahead is not None):
            raise RuntimeError("the engine and the decoding config do not agree about lookahead")
        if lookahead is not None:
            assert decoding is not None
            numbers = lookahead.max_window_size, lookahead.max_ngram_size, lookahead.max_verification_set_size
            if lookahead.calculate_speculative_resource_tuple(*numbers)[2] > build["max_draft_len"]:
                raise RuntimeError("the lookahead config needs more draft tokens than the engine was built for")
            if decoding.decoding_mode is not DecodingMode.LOOKAHEAD:
                raise RuntimeError("lookahead needs its decoding mode")

    def _make_cache(self) -> KvCache:
        own, model = self.config.kv_cache_config, self.engine.model
        shape = model["num_hidden_layers"], model["num_key_value_heads"], model["head_size"]
        num_tokens = num_tokens_that_fit(*shape, own.free_gpu_memory_fraction, own.max_tokens)
        return KvCache(self.engine.plugins["tokens_per_block"], num_tokens, reuse=own.enable_block_reuse)

    @property
    def max_batch_size(self) -> int:
        return min(self.config.max_batch_size or 2048, int(self.engine.build["max_batch_size"]))

    @property
    def max_num_tokens(self) -> int:
        return min(self.config.max_num_tokens or 8192, int(self.engine.build["max_num_tokens"]))

    @property
    def max_input_length(self) -> int:
        longest = int(self.engine.build["max_seq_len"]) - 1
        return longest if self.config.enable_chunked_context else min(longest, self.max_num_tokens)

    @property
    def keeps_all(self) -> bool:
        policy = self.config.scheduler_config.capacity_scheduler_policy
        return policy is not CapacitySchedulerPolicy.MAX_UTILIZATION

    @property
    def can_process_logits(self) -> bool:
        """Whether a callable of this process can edit the logits."""
        processors = self.config.logits_post_processor_config
        alone = self.engine.model["mapping"]["tp_size"] == 1
        return self._ranks.computes_here and (alone or (processors is not None and not processors.replicate))

    # What the bindings offer

    def can_enqueue_requests(self) -> bool:
        return not self._shutdown_called and self._ranks.is_leader

    def enqueue_request(self, request: Request) -> int:
        self._check_use()
        if not isinstance(request, Request):
            raise TypeError("incompatible function arguments")
        with self._lock:
            request_id, self._next_id = self._next_id, self._next_id + 1
            self._incoming.append(Sequence(request_id, request, self))
            self._lock.notify_all()
        return request_id

    def await_responses(self, timeout: timedelta | float | None = None) -> list[Response]:
        """Block the calling thread until there is a response, or return [] after the timeout."""
        if not isinstance(timeout, timedelta | float | None):
            raise TypeError(f"await_responses(): incompatible function arguments: {timeout!r}")
        self._check_use()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        with self._lock:
            self._lock.wait_for(lambda: self._responses or self._stopping, seconds)
            responses, self._responses = self._responses, []
            self._terminated |= {r.request_id for r in responses if r.has_error() or r.result.is_final}
        return sorted(responses, key=lambda response: response.request_id % 7)  # in no order but each request's own

    def cancel_request(self, request_id: int | None = None) -> None:
        self._check_use()
        with self._lock:
            if request_id is not None and request_id not in self._terminated and not STAGE.refuse_abort:
                self._cancelled.add(request_id)

    def get_latest_iteration_stats(self) -> list[IterationStats]:
        self._check_use()
        with self._lock:
            found = list(self._stats)
            self._stats.clear()
        return found

    def shutdown(self) -> None:
        """Wait until nothing is active any more; on another rank, until the leader has shut down."""
        if self._shutdown_called:
            return
        self._shutdown_called = True
        if STAGE.hang_shutdown:
            threading.Event().wait()
        if self._ranks.is_leader:
            with self._lock:
                self._stopping = True
                self._lock.notify_all()
            self._thread.join()
        self._ranks.leave()

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _check_use(self) -> None:
        if self._shutdown_called:
            raise RuntimeError("Shutdown called")
        if not self._ranks.is_leader:
            raise RuntimeError("only the leader takes requests")

    # The execution loop

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._incoming or self.active or self._stopping)
                if self._stopping and not self.active:
                    return
            started = time.monotonic()
            responses = [*self._end_cancelled(), *self._forward()]
            if self._ranks.lost:
                threading.Event().wait()  # nothing is heard of a step whose ranks do not answer
            time.sleep(max(0.0, STAGE.step_s - (time.monotonic() - started)))
            with self._lock:
                self._responses += responses
                if not self._stopping:
                    self._take_in()
                self._iter += 1
                self._stats.append(self._iteration(time.monotonic() - started))
                self._lock.notify_all()

    def _take_in(self) -> None:
        while self._incoming and len(self.active) < self.max_batch_size:
            sequence = self._incoming[0]
            if error := refusal(sequence, self):
                self._responses.append(sequence.error(f"Encountered an error when fetching new request: {error}"))
            elif self.cache.try_admit(sequence):
                self.active.append(sequence)
            else:
                return
            self._incoming.popleft()

    def _end_cancelled(self) -> Iterable[Response]:
        with self._lock:
            cancelled = [sequence for sequence in self.active if sequence.request_id in self._cancelled]
            self._cancelled -= {sequence.request_id for sequence in cancelled}
        for sequence in cancelled:
            yield self._finish(sequence, sequence.response([], FinishReason.CANCELLED))

    def _forward(self) -> list[Response]:
        """A step for each; an error in it ends them all, and the executor goes on."""
        try:
            if STAGE.broken_steps and self.active:
                STAGE.broken_steps -= 1
                raise RuntimeError("CUDA runtime error: an illegal memory access was encountered")
            return [response for sequence in list(self.active) if (response := self._advance(sequence)) is not None]
        except Exception as exc:
            error = f"Encountered an error in forwardAsync function: {exc}"
            return [self._finish(sequence, sequence.error(error)) for sequence in list(self.active)]

    def _advance(self, sequence: Sequence) -> Response | None:
        new: list[int] = []
        rows = []
        reason = FinishReason.NOT_FINISHED
        drafts = CHUNK if self.engine.is_lookahead else 1
        while len(new) < 1 + len(sequence.generated) % drafts and reason is FinishReason.NOT_FINISHED:
            logits = sequence.next_logits()
            rows.append(sequence.padded(logits))
            token_id = sequence.sample(logits, self._sampler, is_greedy=self.engine.is_lookahead)
            reason = sequence.take(token_id)
            if reason is not FinishReason.END_ID:
                new.append(token_id)
        is_final = reason is not FinishReason.NOT_FINISHED
        if not is_final and not sequence.request.streaming:
            return None
        response = sequence.response(new, reason, np.stack(rows))
        return self._finish(sequence, response) if is_final else response

    def _finish(self, sequence: Sequence, response: Response) -> Response:
        self.active.remove(sequence)
        self.cache.release(sequence)
        return response

    def _iteration(self, seconds: float) -> IterationStats:
        document = {
            "timestamp": "",
            "iter": self._iter,
            "iterLatencyMS": seconds * 1000,
            "numActiveRequests": len(self.active),
            "numQueuedRequests": len(self._incoming),
            "kvCacheStats": self.cache.stats(),
            "inflightBatchingStats": {"numScheduledRequests": len(self.active), "numPausedRequests": 0},
            "specDecodingStats": None,
        }
        return IterationStats(self._iter, seconds * 1000, document)
