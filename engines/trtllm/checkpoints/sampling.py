"""GenerationRequest to TensorRT-LLM's SamplingParams: a fresh object per request, for submitting changes it.

Source of names and defaults: tensorrt_llm/sampling_params.py, release 1.2.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from engines.contract import GenerationRequest, Guide
from engines.guides import GuideCompiler
from engines.trtllm.checkpoints.guides import guide_arguments
from engines.trtllm.edits import TokenEdits
from engines.trtllm.sampling import bias_row, draw, seed_and_penalties
from engines.trtllm.support import EMULATED_BAD_LENGTH, Sampling


class SamplingTranslator:
    """Writes requests in TensorRT-LLM's words.

    `sampling_params` and `guided_params` are its classes, `end_token_id` is the model's own, `vocab_size` the length of
    a row of logits; `guides` compiles for its tokenizer. `edits_are_late`: see `edits`.
    """

    def __init__(
        self,
        sampling_params: Callable[..., Any],
        guided_params: Callable[..., Any],
        way: Sampling,
        end_token_id: int,
        vocab_size: int,
        guides: GuideCompiler,
        *,
        edits_are_late: bool,
    ) -> None:
        self._sampling_params = sampling_params
        self._guided_params = guided_params
        self._way = way
        self._end_token_id = end_token_id
        self._vocab_size = vocab_size
        self._guides = guides
        self._edits_are_late = edits_are_late
        names = {field.name for field in fields(sampling_params)}  # type: ignore[arg-type]  # it is a dataclass
        self.leaves_prompt_out = "prompt_ignore_length" in names

    def translate(self, request: GenerationRequest) -> Any:
        """Return the sampling parameters of a request that `Refusals.check` has passed."""
        sampling = request.sampling
        edits = TokenEdits.of(request, EMULATED_BAD_LENGTH.get(self._way), is_late=self._edits_are_late)
        return self._sampling_params(
            # The end token is one of our stop tokens: those alone end a sequence, and stay in the output whatever the
            # sampler, which is not so of end_id. ignore_eos sends -1 in its place.
            end_id=self._end_token_id,
            pad_id=self._end_token_id,
            ignore_eos=True,
            stop_token_ids=sorted(request.stop_token_ids) or None,
            include_stop_str_in_output=True,
            max_tokens=request.max_tokens,
            detokenize=False,
            logits_processor=edits,
            embedding_bias=bias_row(sampling, self._vocab_size),  # it becomes a tensor there
            guided_decoding=self._guided_decoding(request.guide),
            return_context_logits=sampling.prompt_logprobs is not None,
            return_generation_logits=sampling.logprobs is not None,
            **draw(sampling),
            **(self._of_the_cpp_sampler(request) if self._way is Sampling.TRTLLM else {}),
        )

    def _guided_decoding(self, guide: Guide | None) -> Any:
        return None if guide is None else self._guided_params(**guide_arguments(guide, self._guides))

    def _of_the_cpp_sampler(self, request: GenerationRequest) -> dict[str, Any]:
        arguments = seed_and_penalties(request)
        if single := [sequence[0] for sequence in request.sampling.bad_token_sequences if len(sequence) == 1]:
            arguments["bad_token_ids"] = single
        return arguments
