"""A first run on a real GPU; docs/gpu-checklist.md says what else to look at.

The environment variables LLM_SERVER_GPU_CHECKPOINT and LLM_SERVER_GPU_ENGINE name the folders of a checkpoint and of an
engine that this server built with --gather-logits.
"""

import asyncio
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engines import EngineConfig, EngineFolder, Guide, GuideKind, SamplingParams
from engines.config import TensorRTLLMConfig
from engines.trtllm.adopt import adopt_checkpoint
from engines.trtllm.edits import come_late
from engines.trtllm.executor import TRTLLMExecutor
from tests.engines.test_conformance import collect, flat, request_for, tokens

CHECKPOINT = os.environ.get("LLM_SERVER_GPU_CHECKPOINT")
ENGINE = os.environ.get("LLM_SERVER_GPU_ENGINE")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("tensorrt_llm") is None, reason="TensorRT-LLM is not installed"),
]


@pytest.mark.skipif(CHECKPOINT is None, reason="LLM_SERVER_GPU_CHECKPOINT names no checkpoint")
@pytest.mark.parametrize("disable_overlap_scheduler", [False, True])
def test_a_real_checkpoint_keeps_the_promises_that_the_fake_was_built_on(
    tmp_path: Path, disable_overlap_scheduler: bool
) -> None:
    settings = TensorRTLLMConfig(gather_generation_logits=True, disable_overlap_scheduler=disable_overlap_scheduler)
    keeps_its_promises(adopt_checkpoint(Path(str(CHECKPOINT)), tmp_path).path, settings, come_late(settings))


@pytest.mark.skipif(ENGINE is None, reason="LLM_SERVER_GPU_ENGINE names no engine")
def test_a_real_engine_keeps_the_promises_that_the_fake_was_built_on() -> None:
    keeps_its_promises(Path(str(ENGINE)), TensorRTLLMConfig(gather_generation_logits=True), edits_are_late=False)


def keeps_its_promises(folder: Path, settings: TensorRTLLMConfig, edits_are_late: bool) -> None:
    config = EngineConfig(kv_cache_fraction=0.5, max_batch_size=8, max_num_tokens=2048, trtllm=settings)
    executor = TRTLLMExecutor.load(EngineFolder.load(folder), config)

    async def story() -> None:
        await executor.start()
        try:
            assert executor.info.num_blocks > 0
            await greedy_answers_repeat()
            await seeds_repeat()
            await rules_on_logits_hold()
            await stop_tokens_stay_and_guides_hold()
            await logprobs_fit_the_tokens()
        finally:
            await executor.shutdown()

    async def greedy_answers_repeat() -> None:
        first, second = [await collect(executor.submit(request_for(name, range(100, 300)))) for name in ("a", "b")]
        assert flat(first) == flat(second)
        assert (second[0].num_cached_tokens or 0) >= 160

    async def seeds_repeat() -> None:
        sampling = SamplingParams(seed=7, temperature=1.5, min_p=0.02)
        answers = [await tokens(executor, request_for(name, range(100, 130), sampling)) for name in ("a", "b")]
        assert answers[0] == answers[1]

    async def rules_on_logits_hold() -> None:
        plain = await tokens(executor, request_for("plain", range(100, 130)))
        word = (plain[1],) if edits_are_late else (plain[0], plain[1])
        bad = SamplingParams(temperature=0.0, bad_token_sequences=(word,), logit_bias={plain[0]: 100.0})
        edited = await tokens(executor, request_for("edited", range(100, 130), bad))
        assert edited[0] == plain[0]
        assert edited[1] != plain[1]

    async def stop_tokens_stay_and_guides_hold() -> None:
        plain = await tokens(executor, request_for("plain", range(100, 130)))
        held = replace(
            request_for("held", range(100, 130), SamplingParams(temperature=0.0, min_tokens=6)),
            stop_token_ids=frozenset(plain[:3]),
        )
        answer = await tokens(executor, held)
        assert len(answer) >= 6
        assert not set(answer[:6]) & set(plain[:3])
        stopped = replace(request_for("stopped", range(100, 130)), stop_token_ids=frozenset(plain[2:4]))
        assert await tokens(executor, stopped) in (plain[:1], plain[:2], plain[:3])
        digits = Guide(GuideKind.REGEX, "[0-9]{3}")
        await executor.compile(digits)
        end = EngineFolder.load(folder).description.end_token_ids[0]
        guided = replace(request_for("guided", range(100, 130)), guide=digits, stop_token_ids=frozenset([end]))
        text = Tokenizer.from_file(str(EngineFolder.load(folder).tokenizer_path)).decode(await tokens(executor, guided))
        assert len(text) == 3
        assert text.isdigit()

    async def logprobs_fit_the_tokens() -> None:
        sampling = SamplingParams(temperature=0.0, logprobs=3, prompt_logprobs=1)
        outputs = await collect(executor.submit(request_for("a", range(100, 130), sampling)))
        entries = [entry for output in outputs for entry in output.logprobs]
        assert [entry.token_id for entry in entries] == flat(outputs)
        assert all(entry.alternatives[0][0] == entry.token_id for entry in entries)  # greedy: the most likely one
        assert len(outputs[0].prompt_logprobs or ()) == 29

    asyncio.run(story())
