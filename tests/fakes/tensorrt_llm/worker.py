"""The executor behind the LLM: a thread that steps through in-flight batches over a tiny model."""

import json
import pickle
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np

from .executor.request import LoRARequest
from .executor.utils import RequestError
from .kv_cache import KvCache, num_tokens_that_fit
from .llmapi.llm_args import KvCacheConfig, TorchLlmArgs
from .lora_manager import LoraManager
from .model import Floats, TinyModel
from .result import AsyncQueue, IterationResult, Logprob, RequestOutput, Response, dispatch
from .samplers import NEVER, TorchSampler, TRTLLMSampler
from .sampling_params import SamplingParams
from .stage import STAGE
from .tensor import Tensor

CANCEL_DELAY_STEPS = 1  # an abort takes effect a step later: one more response may come


@dataclass
class Live:
    """A request in the worker: one sequence per `n`."""

    result: RequestOutput
    params: SamplingParams  # the worker's copy, pickled on its way
    salt: str | None
    max_tokens: int
    stop_words: list[tuple[int | str, list[int]]]
    streaming: bool
    lora: LoRARequest | None = None
    generated: list[list[int]] = field(default_factory=list)
    unsent: list[list[int]] = field(default_factory=list)
    over: set[int] = field(default_factory=set)
    cached_tokens: int = 0
    num_blocks: int = 0
    matcher: Any = None
    cancel_in: int | None = None
    logprobs: list[list[dict[int, Logprob]]] = field(default_factory=list)

    @property
    def prompt(self) -> list[int]:
        return self.result.prompt_token_ids

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.max_tokens

    @property
    def num_sequences(self) -> int:
        return self.params.n

    def identity(self) -> list[tuple[str | None, int | None, int]]:
        task = None if self.lora is None else self.lora.lora_int_id
        return [
            (self.salt, task, token) for token in [*self.prompt, *(self.generated[0][:-1] if self.generated else [])]
        ]

    def content(self, start: int, end: int) -> tuple[int, int]:
        return start, end

    def take_over(self, content: tuple[int, int]) -> None:
        pass


class Executor:
    """Stands for both the proxy in this process and the workers behind it."""

    def __init__(self, arguments: TorchLlmArgs, config: dict[str, Any], tokenizer_path: Path) -> None:
        self._arguments = arguments
        self._model = TinyModel(config["vocab_size"])
        self._adapters = LoraManager(arguments, config["vocab_size"])
        self._sampler = TRTLLMSampler() if arguments.sampler_type == "TRTLLMSampler" else TorchSampler()
        self._tokenizer_path = tokenizer_path
        self._end_id = config["eos_token_id"]
        self.cache = _cache(arguments.kv_cache_config, config)
        self.mpi_futures: list[Future[None]] = []
        self.iter_stats: IterationResult | None = None
        self._incoming: deque[Live | int] = deque()
        self._waiting: list[Live] = []
        self.active: list[Live] = []
        self._fatal: Exception | None = None
        self._is_shutdown = False
        self._iter = 0
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-trtllm-worker", daemon=True)
        self._reports: SimpleQueue[tuple[AsyncQueue, Any] | None] = SimpleQueue()
        self._thread.start()
        threading.Thread(target=self._report, name="fake-trtllm-stats", daemon=True).start()

    @property
    def _overlaps(self) -> bool:
        """Whether a step is computed before the token of the step before is known on the host."""
        return not self._arguments.disable_overlap_scheduler and self._arguments.pipeline_parallel_size == 1

    def is_shutdown(self) -> bool:
        return self._is_shutdown

    def submit(self, live: Live) -> None:
        live.params = pickle.loads(pickle.dumps(live.params))
        if self._fatal is not None:
            self.stop()
            raise self._fatal
        if refusal := self._refusal(live):
            if self._arguments.gather_generation_logits:  # the worker is in this process
                raise RequestError(refusal)
            dispatch([(live.result.queue, Response(error=refusal))])
            return
        try:
            self._adapters.shift(live.lora)
        except Exception as exc:  # 1.2 loads adapters outside of any guard
            self.die(exc)
        self._incoming.append(live)  # after that: no step meets an adapter that is not there
        self._wake.set()

    def abort(self, request_id: int) -> None:
        if self._is_shutdown:
            raise RuntimeError("the request queue is closed")
        self._incoming.append(request_id)
        self._wake.set()

    def die(self, error: Exception) -> None:
        """Fail as if a worker had thrown outside of any request."""
        self._fatal = error
        self._wake.set()

    def stop(self) -> None:
        self._is_shutdown = True
        self._reports.put(None)
        self._wake.set()

    def join(self) -> None:
        self._thread.join()

    def _refusal(self, live: Live) -> str | None:
        params, limit = live.params, self._arguments.max_seq_len or 0
        if params.has_untokenised_words:
            return "SamplingParams.stop is not processed by tokenizer, please call the setup method."
        if params.top_p == 0:
            return "topP must be in (0, 1]"
        if len(live.prompt) >= limit or live.max_tokens <= 0:
            return f"the prompt length ({len(live.prompt)}) or max_tokens does not fit max_seq_len ({limit})"
        return None

    def _run(self) -> None:
        while not self._is_shutdown:
            self._wake.wait()
            self._wake.clear()
            while not self._is_shutdown and (self._incoming or self._waiting or self.active or self._fatal):
                if STAGE.stall:
                    return
                started = time.monotonic()
                is_fatal = self._fatal is not None
                batch = self._step()
                time.sleep(max(0.0, STAGE.step_s - (time.monotonic() - started)))
                if self._arguments.enable_iter_perf_stats and self.iter_stats is not None:
                    self._reports.put((self.iter_stats.queue, self._iteration(time.monotonic() - started)))
                if batch:
                    dispatch(batch)
                if is_fatal:
                    return

    def _report(self) -> None:
        """Statistics come by a thread of their own, which is in no hurry."""
        while (report := self._reports.get()) is not None:
            while STAGE.hold_stats:
                time.sleep(0.01)
            dispatch([report])

    def _step(self) -> list[tuple[AsyncQueue, Any]]:
        if self._fatal is not None:
            everybody = [*self.active, *self._waiting, *(live for live in self._incoming if isinstance(live, Live))]
            return [(live.result.queue, Response(fatal=self._fatal)) for live in everybody]
        self._take_in()
        batch: list[tuple[AsyncQueue, Any]] = []
        for live in list(self.active):
            responses = self._advance(live)
            batch += [(live.result.queue, response) for response in responses]
            if any(response.is_final or response.error for response in responses):
                self._release(live)
        self._iter += 1
        return batch

    def _take_in(self) -> None:
        while self._incoming:
            item = self._incoming.popleft()
            if isinstance(item, Live):
                self._waiting.append(item)
                continue
            # What waits is dropped without a word; what runs ends a step later.
            self._waiting = [live for live in self._waiting if live.result.request_id != item]
            for live in self.active:
                if live.result.request_id == item and live.cancel_in is None and not STAGE.refuse_abort:
                    live.cancel_in = CANCEL_DELAY_STEPS
        while self._waiting and len(self.active) < (self._arguments.max_batch_size or 1):
            live = self._waiting[0]
            if not self.cache.try_admit(live):
                break
            self.active.append(self._waiting.pop(0))

    def _release(self, live: Live) -> None:
        self.active.remove(live)
        self.cache.release(live)

    def _advance(self, live: Live) -> list[Response]:
        if live.cancel_in == 0:
            return [Response(finish="CANCELLED", is_final=True, cached_tokens=live.cached_tokens)]
        if live.cancel_in is not None:
            live.cancel_in -= 1
        if not live.generated and (error := self._begin(live)):
            return [Response(error=error)]
        return [
            response
            for index in range(live.params.n)
            if index not in live.over and (response := self._advance_sequence(live, index)) is not None
        ]

    def _begin(self, live: Live) -> str | None:
        if max(live.prompt) >= self._model.vocab_size or min(live.prompt) < 0:
            return "Token ID out of range"
        live.generated = [[] for _ in range(live.params.n)]
        live.unsent = [[] for _ in range(live.params.n)]
        live.logprobs = [[] for _ in range(live.params.n)]
        if live.params.guided_decoding is not None:
            try:
                live.matcher = self._matcher(live.params.guided_decoding)
            except (ValueError, TypeError) as exc:
                return f"Guided decoding error: {exc}"
        return None

    def _matcher(self, guide: Any) -> Any:
        if self._arguments.guided_decoding_backend != "llguidance":
            raise ValueError("guided decoding is not enabled")
        library = llguidance.LLMatcher
        if guide.json_object:
            grammar = library.grammar_from_json_schema('{"type": "object"}')
        elif guide.json is not None:
            grammar = library.grammar_from_json_schema(guide.json)
        elif guide.regex is not None:
            grammar = library.grammar_from_regex(guide.regex)
        else:
            grammar = library.grammar_from_lark(guide.grammar)
        text = self._tokenizer_path.read_text(encoding="utf-8")
        tokenizer = llguidance.LLTokenizer(text, n_vocab=self._model.vocab_size, eos_token=self._end_id)
        matcher = library(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(f"LLGuidance matcher error: {matcher.get_error()}")
        return matcher

    def _advance_sequence(self, live: Live, index: int) -> Response | None:
        params, generated = live.params, live.generated[index]
        is_first = not generated
        logits = self._logits(live, generated)
        token_id = self._sampler.sample(logits, params, live.prompt, generated)
        if live.matcher is not None and not live.matcher.is_stopped():
            live.matcher.consume_token(token_id)
        generated.append(token_id)
        live.unsent[index].append(token_id)
        if params.logprobs:
            live.logprobs[index].append(self._top(logits, token_id, params.logprobs))
        finish = self._finish(live, token_id, generated)
        if finish == "END_ID" and not self._sampler.includes_end:
            live.unsent[index].pop()
        if finish is not None:
            live.over.add(index)
        if finish is None and (not live.streaming or len(live.unsent[index]) < self._arguments.stream_interval):
            return None
        response = Response(
            index,
            live.unsent[index],
            live.logprobs[index],
            finish,
            is_final=len(live.over) == params.n,
            cached_tokens=live.cached_tokens,
        )
        live.unsent[index], live.logprobs[index] = [], []
        if params.return_generation_logits:
            response.generation_logits = Tensor(logits[None])
        if is_first and (params.return_context_logits or params.prompt_logprobs):
            self._add_context(live, response)
        return response

    def _logits(self, live: Live, generated: list[int]) -> Floats:
        """Logits processors and the guide edit in place, before anybody copies the logits."""
        tokens = [*live.prompt, *generated]
        logits = self._raw_logits(live, tokens)
        processors = live.params.logits_processor
        known = [*live.prompt, *(generated[:-1] if self._overlaps else generated)]
        for processor in processors if isinstance(processors, list) else filter(None, [processors]):
            processor(live.result.request_id, Tensor(logits[None, None]), [known], None, None)
        if live.matcher is not None:
            bits = llguidance.numpy.allocate_token_bitmask(1, len(logits))
            llguidance.numpy.fill_next_token_bitmask(live.matcher, bits)
            allowed = np.unpackbits(bits.view(np.uint8)[0], count=len(logits), bitorder="little")
            logits[allowed == 0] = NEVER
        return logits

    def _raw_logits(self, live: Live, tokens: list[int]) -> Floats:
        logits: Floats = self._model.logits(tokens) + self._adapters.shift(live.lora)
        return logits

    def _finish(self, live: Live, token_id: int, generated: list[int]) -> Any:
        params = live.params
        if token_id == params.end_id and not params.ignore_eos:
            return "END_ID"
        if len(generated) >= live.max_tokens:
            return "LENGTH"
        if any(generated[-len(word) :] == word for _, word in live.stop_words):
            return "STOP_WORDS"
        return None

    def _top(self, logits: Floats, token_id: int, num: int) -> dict[int, Logprob]:
        logprobs = logits - logits.max()
        logprobs = logprobs - np.log(np.exp(logprobs).sum())
        if isinstance(self._sampler, TRTLLMSampler):
            return {token_id: Logprob(float(logprobs[token_id]), 1)}
        best = np.argsort(-logprobs, kind="stable")[:num]
        return {int(i): Logprob(float(logprobs[i]), rank + 1) for rank, i in enumerate(best)}

    def _add_context(self, live: Live, response: Response) -> None:
        """Logits of the prompt, without those of tokens that came out of the cache."""
        rows = [self._raw_logits(live, live.prompt[: n + 1]) for n in range(live.cached_tokens, len(live.prompt))]
        if live.params.return_context_logits:
            response.context_logits = Tensor(np.stack(rows))
        if live.params.prompt_logprobs:
            response.prompt_logprobs = [self._top(row, int(row.argmax()), live.params.prompt_logprobs) for row in rows]

    def _iteration(self, seconds: float) -> dict[str, Any]:
        return {
            "timestamp": "",
            "iter": self._iter,
            "iterLatencyMS": seconds * 1000,
            "numActiveRequests": len(self.active),
            "numQueuedRequests": len(self._waiting),
            "kvCacheStats": self.cache.stats(),
            "inflightBatchingStats": {"numScheduledRequests": len(self.active), "numPausedRequests": 0},
            "specDecodingStats": None,
        }


def _cache(own: KvCacheConfig, config: dict[str, Any]) -> KvCache:
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    shape = config["num_hidden_layers"], config["num_key_value_heads"], head_size
    num_tokens = num_tokens_that_fit(*shape, own.free_gpu_memory_fraction, own.max_tokens)
    return KvCache(own.tokens_per_block, num_tokens, reuse=own.enable_block_reuse)


def read_json(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document
