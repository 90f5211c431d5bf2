"""Doubles that stand for the slow or unpredictable parts: an executor that follows a script, a tokenizer of bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from engines.contract import (
    ExecutorInfo,
    ExecutorStats,
    FinishReason,
    GenerationRequest,
    Guide,
    TokenLogprob,
    TokenOutput,
)
from engines.errors import EngineDeadError, EngineError
from engines.validation import check_request
from llm_server.tokenizer import Tokenizer

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
END_ID = 258  # <|im_end|>
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(pool: ThreadPoolExecutor | None = None) -> Tokenizer:
    """A byte-level tokenizer whose ids 0 to 255 are the bytes, followed by SPECIAL_TOKENS."""
    return Tokenizer(json.dumps(byte_tokenizer_json()), pool)


def byte_tokenizer_json(*more: str) -> dict[str, Any]:
    """Its tokenizer.json, with `more` added tokens that are not special."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    added = [
        {"id": 256 + n, "content": text, "special": text in SPECIAL_TOKENS}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for n, text in enumerate((*SPECIAL_TOKENS, *more))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {alphabet[byte]: byte for byte in range(256)}, "merges": []}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model,
    }


INFO = ExecutorInfo(
    engine="scripted",
    precision="none",
    vocab_size=256 + len(SPECIAL_TOKENS),
    max_sequence_length=512,
    max_batch_size=4,
    max_waiting=8,
    block_size=32,
    num_blocks=64,
)

Script = Callable[[GenerationRequest], Sequence[int]]


def says(text: str, *, ends: bool = True) -> Script:
    """A script that answers every prompt with `text`, and with its end token unless `ends` is false."""
    token_ids = [*text.encode(), *([END_ID] if ends else [])]
    return lambda request: token_ids


@dataclass
class ScriptedExecutor:
    """Gives every sequence the tokens that the script has for it, one at a time, as far as `max_tokens` goes.

    `pause_after` tokens of a sequence it waits for `resume`. `refusal` is raised by submit, `failure` in place of the
    token that would follow the pause.
    """

    script: Script = field(default_factory=lambda: says("Hello!"))
    info: ExecutorInfo = INFO
    pause_after: int | None = None
    refusal: EngineError | None = None
    failure: EngineError | None = None
    requests: list[GenerationRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    guides: list[Guide] = field(default_factory=list)
    on_cancel: Callable[[str], None] = lambda seq_id: None
    is_alive: bool = False

    async def start(self) -> None:
        self.is_alive = True
        self._changed = asyncio.Event()

    def resume(self) -> None:
        self.pause_after = None
        self._changed.set()

    def submit(self, request: GenerationRequest) -> AsyncIterator[TokenOutput]:
        if not self.is_alive:
            raise EngineDeadError("the engine is not running")
        if self.refusal is not None:
            raise self.refusal
        check_request(request, self.info)
        self.requests.append(request)
        self.live.add(request.seq_id)
        return self._outputs(request)

    async def _outputs(self, request: GenerationRequest) -> AsyncIterator[TokenOutput]:
        token_ids = list(self.script(request))[: request.max_tokens]
        for position, token_id in enumerate(token_ids):
            while position == self.pause_after and request.seq_id in self.live and self.is_alive:
                self._changed.clear()
                await self._changed.wait()
            await asyncio.sleep(0)
            if not self.is_alive:
                raise EngineDeadError("the engine was shut down")
            if request.seq_id not in self.live:
                return
            if self.failure is not None and position:
                raise self.failure
            ended = token_id in request.stop_token_ids
            if ended or position + 1 == request.max_tokens:
                self.live.discard(request.seq_id)
                yield self._output(request, position, FinishReason.STOP if ended else FinishReason.LENGTH, token_id)
                return
            yield self._output(request, position, None, token_id)
        raise AssertionError("the script is over, but neither an end token nor the limit was reached")

    def _output(
        self, request: GenerationRequest, position: int, finish: FinishReason | None, token_id: int
    ) -> TokenOutput:
        num_alternatives = request.sampling.logprobs
        logprobs: tuple[TokenLogprob, ...] = ()
        if num_alternatives is not None:
            alternatives = tuple((token_id + n, -0.5 * (n + 1)) for n in range(num_alternatives))
            logprobs = (TokenLogprob(token_id, -0.5, alternatives),)
        output = TokenOutput((token_id,), finish, logprobs)
        return replace(output, num_cached_tokens=3) if position == 0 else output

    def cancel(self, seq_id: str) -> None:
        if seq_id in self.live:
            self.live.discard(seq_id)
            self.cancelled.append(seq_id)
            self.on_cancel(seq_id)
            self._changed.set()

    async def compile(self, guide: Guide) -> None:
        self.guides.append(guide)

    def stats(self) -> ExecutorStats:
        return ExecutorStats(num_running=len(self.live))

    async def shutdown(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._changed.set()
