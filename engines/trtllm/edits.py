"""Rules on the logits that TensorRT-LLM 1.2 does not have itself: callables that it hands the logits to.

Neither sampler knows `min_tokens` but for one end token; those of the LLM API know bad words of a single token id only,
and the runtime of prebuilt engines knows no llguidance.
Source of the call: `LogitsProcessor`, tensorrt_llm/sampling_params.py; logits are [1, 1, vocab_size padded] in place,
and `stream_ptr` is the CUDA stream that computes them.

With the overlap scheduler a checkpoint's step begins before the token of the step before is on the host: the callable
sees all tokens but the newest one. Behind the prompt it cannot tell whether there is a newest one.
Source: `_executor_loop_overlap`, pyexecutor/py_executor.py, and `forward`, pyexecutor/model_engine.py, release 1.2.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from engines.config import TensorRTLLMConfig
from engines.contract import GenerationRequest
from engines.guides import GuideMatcher


def come_late(own: TensorRTLLMConfig) -> bool:
    """Whether callables of a checkpoint do not see the newest token: pipelines have a loop of their own, and wait."""
    return not own.disable_overlap_scheduler and own.pipeline_parallel_size == 1


class TokenEdits:
    """Masks stop tokens until min_tokens are generated, and the last token of each bad sequence behind the others.

    Where it comes late it is right for min_tokens of 2 and more, and for bad sequences of one token. It is pickled, so
    it is a plain class of an importable module.
    """

    def __init__(
        self,
        num_prompt_tokens: int,
        min_tokens: int,
        stop_token_ids: Sequence[int],
        bad: Sequence[Sequence[int]],
        num_unseen: int = 0,
    ) -> None:
        self.num_known_tokens = num_prompt_tokens - num_unseen
        self.min_tokens = min_tokens
        self.stop_token_ids = list(stop_token_ids)
        self.bad = [tuple(sequence) for sequence in bad]

    @classmethod
    def of(
        cls, request: GenerationRequest, min_bad_length: int | None, *, is_late: bool = False
    ) -> "TokenEdits | None":
        """Return what a request needs, None if that is nothing. Bad words are edited from `min_bad_length` on."""
        sampling = request.sampling
        bad = [word for word in sampling.bad_token_sequences if min_bad_length and len(word) >= min_bad_length]
        holds_back = sampling.min_tokens > 0 and request.stop_token_ids
        if not (bad or holds_back):
            return None
        min_tokens = sampling.min_tokens if holds_back else 0
        stops = sorted(request.stop_token_ids)
        return cls(len(request.prompt_token_ids), min_tokens, stops, bad, num_unseen=int(is_late))

    def __call__(
        self, req_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: int | None, client_id: int | None
    ) -> None:
        """Edit the logits of the next token behind `token_ids`, prompt and generated ones of the only beam."""
        tokens = token_ids[0]
        masked = [sequence[-1] for sequence in self.bad if _ends_with(tokens, sequence[:-1])]
        if len(tokens) - self.num_known_tokens < self.min_tokens:
            masked += self.stop_token_ids
        if masked:
            with _on_stream(stream_ptr):
                logits[..., masked] = float("-inf")


class GuideEdits:
    """Masks what a guide does not allow. It stays in this process.

    An exception in here would end the step for everybody: what went wrong is kept in `error` instead.
    """

    def __init__(self, matcher: GuideMatcher, num_prompt_tokens: int, vocab_size: int) -> None:
        self._matcher = matcher
        self._num_seen = num_prompt_tokens
        self._vocab_size = vocab_size
        self.error: str | None = None
        """Why the guide cannot be followed to its end, if so; the matcher itself belongs to the thread that calls."""

    def __call__(
        self, req_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: int | None, client_id: int | None
    ) -> None:
        """Edit the logits of the next token; after a preemption old tokens come once more, and are known."""
        import torch  # here: whoever calls this has it

        for token_id in token_ids[0][self._num_seen :]:
            self._matcher.advance(token_id)
        self._num_seen = max(self._num_seen, len(token_ids[0]))
        row = np.zeros(self._vocab_size, np.float32)
        self._matcher.mask(row)
        self.error = self._matcher.error
        with _on_stream(stream_ptr):
            view = logits[..., : self._vocab_size]
            view += torch.from_numpy(row).to(logits.device)


@contextmanager
def _on_stream(stream_ptr: int | None) -> Iterator[None]:
    """Let what is done to tensors join the stream, which is not the one that this thread uses otherwise."""
    if stream_ptr is None:
        yield
        return
    import torch  # here: whoever calls this has it

    with torch.cuda.stream(torch.cuda.ExternalStream(stream_ptr)):
        yield


def _ends_with(tokens: Sequence[int], ending: tuple[int, ...]) -> bool:
    return not ending or tuple(tokens[-len(ending) :]) == ending
