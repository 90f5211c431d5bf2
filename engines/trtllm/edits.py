"""Rules on the logits that neither sampler of TensorRT-LLM 1.2 has: a logits processor that travels to the workers.

Both samplers know `min_tokens` for one end token only, and bad words of a single token id.
Source of the call: `LogitsProcessor`, tensorrt_llm/sampling_params.py; logits are [1, 1, vocab_size] in place.
"""

from collections.abc import Sequence
from typing import Any

from engines.contract import GenerationRequest


class TokenEdits:
    """Masks stop tokens until min_tokens are generated, and the last token of each bad sequence behind the others.

    It is pickled, so it is a plain class of an importable module.
    """

    def __init__(
        self, num_prompt_tokens: int, min_tokens: int, stop_token_ids: Sequence[int], bad: Sequence[Sequence[int]]
    ) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.min_tokens = min_tokens
        self.stop_token_ids = list(stop_token_ids)
        self.bad = [tuple(sequence) for sequence in bad]

    @classmethod
    def of(cls, request: GenerationRequest, *, single_bad_tokens: bool) -> "TokenEdits | None":
        """Return what a request needs, None if that is nothing. `single_bad_tokens`: edit these too."""
        sampling = request.sampling
        bad = [sequence for sequence in sampling.bad_token_sequences if single_bad_tokens or len(sequence) > 1]
        holds_back = sampling.min_tokens > 0 and request.stop_token_ids
        if not (bad or holds_back):
            return None
        min_tokens = sampling.min_tokens if holds_back else 0
        return cls(len(request.prompt_token_ids), min_tokens, sorted(request.stop_token_ids), bad)

    def __call__(
        self, req_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: int | None, client_id: int | None
    ) -> None:
        """Edit the logits of the next token behind `token_ids`, prompt and generated ones of the only beam."""
        tokens = token_ids[0]
        masked = [sequence[-1] for sequence in self.bad if _ends_with(tokens, sequence[:-1])]
        if len(tokens) - self.num_prompt_tokens < self.min_tokens:
            masked += self.stop_token_ids
        if masked:
            logits[..., masked] = float("-inf")


def _ends_with(tokens: Sequence[int], ending: tuple[int, ...]) -> bool:
    return not ending or tuple(tokens[-len(ending) :]) == ending
