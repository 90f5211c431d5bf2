"""GenerationRequest to a Request of the C++ executor.

Stop tokens are stop words, never `end_id`: the token of `end_id` is not part of the output, the last one of a stop word
is, and of several tokens of one step those behind it are cut. So the reader needs to put nothing back.
Source: cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu and nanobind/executor/request.cpp, release 1.2.
"""

import hashlib
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from engines.contract import GenerationRequest, Mrope, PromptEmbeddings
from engines.guides import GuideCompiler
from engines.trtllm.edits import GuideEdits, TokenEdits
from engines.trtllm.prebuilt.engine import PrebuiltEngine
from engines.trtllm.sampling import bias_row, draw, seed_and_penalties
from engines.trtllm.support import EMULATED_BAD_LENGTH, Sampling

NO_END_ID = -1


@dataclass(frozen=True, slots=True)
class Translated:
    """A request in the executor's words."""

    request: Any
    guide_edits: GuideEdits | None
    """What keeps to the guide, if there is one."""


class RequestTranslator:
    """Writes requests in the executor's words: `api` is tensorrt_llm.bindings.executor, `torch` PyTorch."""

    def __init__(
        self, api: ModuleType, torch: ModuleType, engine: PrebuiltEngine, end_token_id: int, guides: GuideCompiler
    ) -> None:
        self._api = api
        self._torch = torch
        self._engine = engine
        self._end_token_id = end_token_id
        self._guides = guides
        # nanobind has no signatures: what a build knows shows in the attributes of the class
        self.leaves_prompt_out = hasattr(api.SamplingConfig, "prompt_ignore_length")

    def translate(self, request: GenerationRequest, cache_salt: str | None, client_id: int) -> Translated:
        """Return what `Refusals.check` has passed. `client_id` comes back with each response."""
        sampling, vocab_size = request.sampling, self._engine.vocab_size
        bias = bias_row(sampling, vocab_size)
        guide_edits = self._guide_edits(request)
        made = self._api.Request(
            input_token_ids=self._token_ids(request),
            max_tokens=request.max_tokens,
            streaming=True,
            sampling_config=self._api.SamplingConfig(beam_width=1, **draw(sampling), **seed_and_penalties(request)),
            output_config=self._api.OutputConfig(
                return_context_logits=sampling.prompt_logprobs is not None,
                return_generation_logits=sampling.logprobs is not None,
                exclude_input_from_output=True,
                return_perf_metrics=True,  # they tell how much of the prompt was reused
            ),
            end_id=NO_END_ID,
            pad_id=self._end_token_id,
            stop_words=[[token_id] for token_id in sorted(request.stop_token_ids)] or None,
            bad_words=[list(sequence) for sequence in sampling.bad_token_sequences] or None,
            embedding_bias=None if bias is None else self._torch.from_numpy(bias),
            logits_post_processor=guide_edits or TokenEdits.of(request, EMULATED_BAD_LENGTH.get(Sampling.ENGINE)),
            prompt_tuning_config=self._prompt_table(request),
            mrope_config=None if request.mrope is None else self._mrope(request.mrope),
            client_id=client_id,
            cache_salt_id=None if cache_salt is None else number_of(cache_salt.encode()),
        )
        return Translated(made, guide_edits)

    def _guide_edits(self, request: GenerationRequest) -> GuideEdits | None:
        if request.guide is None:
            return None
        matcher = self._guides.matcher(request.guide)
        return GuideEdits(matcher, len(request.prompt_token_ids), self._engine.vocab_size)

    def _token_ids(self, request: GenerationRequest) -> list[int]:
        """The prompt, with ids beyond the vocabulary that count through the rows of the table."""
        token_ids = list(request.prompt_token_ids)
        for image, first_row in zip(request.prompt_embeddings, _first_rows(request), strict=True):
            first_id, num = self._engine.vocab_size + first_row, len(image.rows)
            token_ids[image.start : image.start + num] = range(first_id, first_id + num)
        return token_ids

    def _prompt_table(self, request: GenerationRequest) -> Any:
        images = request.prompt_embeddings
        if not images:
            return None
        table = self._torch.from_numpy(np.concatenate([image.rows for image in images]))
        return self._api.PromptTuningConfig(
            embedding_table=table.to(getattr(self._torch, self._engine.dtype)).cuda(),
            input_token_extra_ids=_extra_ids(request, images),
        )

    def _mrope(self, mrope: Mrope) -> Any:
        return self._api.MropeConfig(
            mrope_rotary_cos_sin=self._torch.from_numpy(mrope.rotary_cos_sin),
            mrope_position_deltas=mrope.position_delta,
        )


def number_of(content: bytes) -> int:
    """Hash bytes to a number of 63 bits that is never 0, which stands for nothing."""
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) >> 1 | 1


def _first_rows(request: GenerationRequest) -> list[int]:
    return list(accumulate((len(image.rows) for image in request.prompt_embeddings), initial=0))[:-1]


def _extra_ids(request: GenerationRequest, images: tuple[PromptEmbeddings, ...]) -> list[int]:
    """Per prompt token 0, or what tells images apart: their ids beyond the vocabulary are the same for all."""
    extra_ids = [0] * len(request.prompt_token_ids)
    for image in images:
        extra_ids[image.start : image.start + len(image.rows)] = [number_of(image.content_hash)] * len(image.rows)
    return extra_ids
