"""One request inside the executor: what it is refused for, what it computes, and what its responses say."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from torch import Tensor

from ...model import Floats
from ...samplers import NEVER, TRTLLMSampler
from .requests import FinishReason, KvCacheMetrics, Request, RequestPerfMetrics, Response, Result

STREAM = 0xC0FFEE
PADDING = 5
"""Logits beyond the vocabulary that each row ends with."""


class Params:
    """A request's sampling in the words that the sampler of the C++ runtime is written in."""

    def __init__(self, request: Request) -> None:
        own: Any = request.sampling_config
        self.bias = request.embedding_bias
        self.bad_token_ids = [word[0] for word in request.bad_words or () if len(word) == 1]
        self.min_tokens = own.min_tokens
        self.end_id = request.end_id
        self.ignore_eos = request.end_id in (None, -1)
        self.is_greedy = own.top_k == 1 or (not own.top_k and not own.top_p)
        for name in ("seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            setattr(self, name, getattr(own, name))
        self.prompt_ignore_length = own.prompt_ignore_length
        self.temperature, self.top_k, self.top_p = own.temperature, own.top_k, own.top_p


class Sequence:
    def __init__(self, request_id: int, request: Request, executor: Any) -> None:
        self.request_id = request_id
        self.request = request
        self.prompt: list[int] = request.input_token_ids
        self.generated: list[int] = []
        self.num_blocks = 0
        self.cached_tokens = 0
        self.table: Tensor | None = None
        self.extra_ids: Any = [0] * len(self.prompt)
        if (prompt_tuning := request.prompt_tuning_config) is not None:
            self.table = prompt_tuning.embedding_table
            self.extra_ids = prompt_tuning.input_token_extra_ids or self.extra_ids
        self._executor = executor
        self._params = Params(request)
        self._vectors: list[Floats] = []  # of the tokens whose KV there is
        limit: int = executor.engine.build["max_seq_len"] - executor.engine.max_draft_len
        self.max_tokens = min(request.max_tokens, limit - len(self.prompt))
        self._context: Floats | None = None

    # What the KV cache needs

    num_sequences = 1

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.max_tokens

    def identity(self) -> list[Hashable]:
        salt = self.request.cache_salt_id
        tokens = zip(self.prompt, self.extra_ids, strict=True)
        return [*((salt, *token) for token in tokens), *((salt, token, 0) for token in self.generated[:-1])]

    def content(self, start: int, end: int) -> list[Floats]:
        return self._vectors[start:end]

    def take_over(self, content: list[Floats]) -> None:
        self._vectors += content

    # A step

    def next_logits(self) -> Floats:
        """Compute what is new, and the logits behind it, edited as the request asks for."""
        tokens = [*self.prompt, *self.generated]
        table = None if self.table is None else self.table.cpu().float().numpy()
        if len(tokens) > len(self._vectors):
            self._vectors += list(self._executor.model.embed(tokens[len(self._vectors) :], table))
        if self._context is None and self.request.output_config.return_context_logits:
            ends = range(self.cached_tokens + 1, len(self.prompt) + 1)
            self._context = np.stack([self.padded(self._logits(end)) for end in ends])
        logits = self._logits(len(tokens))
        processor = self.request.logits_post_processor
        if processor is not None:
            whole = Tensor(self.padded(logits)[None, None], device="cuda:0", stream=STREAM)
            processor(self.request_id, whole, [tokens], STREAM, self.request.client_id)
            logits = whole.cpu().numpy()[0, 0, : len(logits)]
        return logits

    def _logits(self, num_tokens: int) -> Floats:
        logits: Floats = self._executor.model.logits_behind(np.stack(self._vectors[:num_tokens]), num_tokens)
        return logits

    def padded(self, logits: Floats) -> Floats:
        return np.concatenate([logits, np.full(PADDING, 99.0, np.float32)])

    def sample(self, logits: Floats, sampler: TRTLLMSampler, *, is_greedy: bool) -> int:
        if is_greedy:
            return int(logits.argmax())
        tokens = [*self.prompt, *self.generated]
        banned = [word[-1] for word in self.request.bad_words or () if tokens[-len(word) + 1 :] == word[:-1]]
        if banned:
            logits = logits.copy()
            logits[banned] = NEVER
        return sampler.sample(logits, self._params, self.prompt, self.generated)  # type: ignore[arg-type]  # its twin

    def take(self, token_id: int) -> FinishReason:
        """Append a token; that of `end_id` is not part of the output, those of stop words are."""
        if token_id == self.request.end_id:
            return FinishReason.END_ID
        self.generated.append(token_id)
        if any(self.generated[-len(word) :] == word for word in self.request.stop_words or ()):
            return FinishReason.STOP_WORDS
        return FinishReason.LENGTH if len(self.generated) >= self.max_tokens else FinishReason.NOT_FINISHED

    # Responses

    def error(self, message: str) -> Response:
        return Response(self.request_id, message, self.request.client_id)

    def response(self, new: list[int], reason: FinishReason, rows: Floats | None = None) -> Response:
        wanted, result = self.request.output_config, Result()
        result.is_final = result.is_sequence_final = reason is not FinishReason.NOT_FINISHED
        result.finish_reasons = [reason]
        result.output_token_ids = [new if self.request.streaming else self._whole()]
        if wanted.return_generation_logits and rows is not None:
            result.generation_logits = Tensor(rows[:, None])
        if self._context is not None:
            result.context_logits = Tensor(self._context)
        if wanted.return_perf_metrics:
            num_reused = self.cached_tokens // self._executor.cache.block_size
            result.request_perf_metrics = RequestPerfMetrics(KvCacheMetrics(num_reused))
        return Response(self.request_id, result, self.request.client_id)

    def _whole(self) -> list[int]:
        excluded = self.request.output_config.exclude_input_from_output
        return [*self.generated] if excluded else [*self.prompt, *self.generated]


def refusal(sequence: Sequence, executor: Any) -> str | None:
    """Why the executor answers a request with an error when it takes it in."""
    request, build = sequence.request, executor.engine.build
    wanted = request.output_config
    if len(sequence.prompt) > executor.max_input_length:
        return f"Prompt length ({len(sequence.prompt)}) exceeds maximum input length ({executor.max_input_length})"
    if wanted.return_context_logits and not build["gather_context_logits"]:
        return "Return context logit need to build engine with gather_context_logits"
    if wanted.return_generation_logits and not executor.config.gather_generation_logits:
        return "To return generation logits, gather_generation_logits must be enabled in ExecutorConfig"
    if request.logits_post_processor is not None and not executor.can_process_logits:
        return "Dynamic logits postprocessor must be used with replicate=false or no tensor parallelism."
    if request.guided_decoding_params is not None:
        return "Request is specified with GuidedDecodingParams, but GuidedDecoder is not setup"
    if request.embedding_bias is not None and request.embedding_bias.shape != (executor.model.vocab_size,):
        return "The embedding bias shape is not as expected."
    if request.streaming and not executor.keeps_all and not executor.config.enable_chunked_context:
        return "This cannot be run unless streaming is disabled or context chunking is enabled"
    return _image_refusal(sequence, executor)


def _image_refusal(sequence: Sequence, executor: Any) -> str | None:
    request, build, model = sequence.request, executor.engine.build, executor.engine.model
    table, prompt_tuning = sequence.table, request.prompt_tuning_config
    num_rows = 0 if table is None else table.shape[0]
    if max(sequence.prompt) >= model["vocab_size"] + num_rows or min(sequence.prompt) < 0:
        return "Token ID out of range"
    if request.mrope_config is not None and not build["use_mrope"]:
        return "the engine has no mrope"
    if table is None or prompt_tuning is None:
        return None
    if num_rows > build["max_prompt_embedding_table_size"] // executor.max_batch_size:  # each request has its share
        return "Prompt vocab size is larger than max prompt vocab size"
    if table.shape[1] != model["hidden_size"] or table.dtype != model["dtype"]:
        return f"expected rows of {model['hidden_size']} {model['dtype']}"
    if table.device == "cpu" and not executor.config.mm_embedding_offloading:
        return "the prompt embedding table is not on the GPU"
    extra_ids = prompt_tuning.input_token_extra_ids
    if executor.config.kv_cache_config.enable_block_reuse:
        if not extra_ids:
            return "Input token extra ids must be provided when enabling kv cache reuse with prompt table"
        if len(extra_ids) != len(sequence.prompt):
            return "inputTokenExtraIds vector size must be the same as input token vector size"
    return None
