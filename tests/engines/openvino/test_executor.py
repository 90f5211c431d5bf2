"""What the engine thread does when the model throws, the thread dies, or nobody reads."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.config import EngineConfig
from engines.contract import (
    ExecutorInfo,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideKind,
    SamplingParams,
    TokenLogprob,
    TokenOutput,
)
from engines.errors import EngineDeadError, GuideError, StepFailedError, TimedOutError
from engines.folder import EngineFolder
from engines.openvino.blocks import BlockPool
from engines.openvino.core import EngineCore
from engines.openvino.executor import OpenVINOExecutor
from engines.openvino.mask_filler import MaskFiller
from engines.openvino.scheduler import Scheduler
from engines.openvino.sequence import ScheduledBatch
from engines.stream import merge
from tests.engines.stories import tell

POISON = 13
PATIENCE_S = 30
INFO = ExecutorInfo("openvino", "f32", 50, 200, max_batch_size=4, max_waiting=8, block_size=4, num_blocks=40)

Story = Callable[[OpenVINOExecutor], Awaitable[None]]


class CountingRunner:
    """A model whose next token is the last one plus one; throws when it meets POISON in a prompt.

    It takes two steps and then waits for the gate, if it has one.
    """

    vocab_size = INFO.vocab_size

    def __init__(self, gate: threading.Event | None = None) -> None:
        self._gate = gate
        self._num_steps = 0

    def forward(self, batch: ScheduledBatch) -> NDArray[np.float32]:
        self._num_steps += 1
        if self._gate is not None and self._num_steps > 2:
            assert self._gate.wait(PATIENCE_S)
        last = [item.seq.token_ids[-1] for item in batch.items]
        if any(item.seq.token_ids[0] == POISON for item in batch.items):
            raise RuntimeError("poisoned")
        logits = np.zeros((len(batch.sampled), self.vocab_size), np.float32)
        logits[np.arange(len(last)), (np.array(last) + 1) % self.vocab_size] = 1.0
        return logits

    def close(self) -> None:
        """Nothing to give back."""


def run(story: Story, scheduler: Scheduler | None = None, gate: threading.Event | None = None) -> OpenVINOExecutor:
    scheduler = scheduler or Scheduler(BlockPool(INFO.num_blocks), INFO.block_size, INFO.max_batch_size, 100)
    executor = OpenVINOExecutor(EngineCore(CountingRunner(gate), scheduler), INFO)
    tell(executor, story)
    return executor


def request(name: str, first: int = 1, max_tokens: int = 5) -> GenerationRequest:
    return GenerationRequest(name, (first, 1, 2), SamplingParams(temperature=0.0), max_tokens)


async def tokens(executor: OpenVINOExecutor, wanted: GenerationRequest) -> list[int]:
    return [token_id for output in [o async for o in executor.submit(wanted)] for token_id in output.token_ids]


def test_a_step_that_throws_fails_its_own_sequences_and_the_engine_goes_on() -> None:
    async def story(executor: OpenVINOExecutor) -> None:
        with pytest.raises(StepFailedError):
            await tokens(executor, request("bad", POISON))
        assert executor.is_alive
        assert await tokens(executor, request("good")) == [3, 4, 5, 6, 7]

    executor = run(story)
    assert executor.stats().num_blocks_used == 0


def test_a_sequence_that_takes_too_long_fails_alone_running_or_waiting() -> None:
    async def story(executor: OpenVINOExecutor) -> None:
        late = [replace(request(f"late{index}", max_tokens=150), timeout_s=1e-6) for index in range(8)]
        others = [request(f"other{index}") for index in range(4)]
        answers = await asyncio.gather(*(tokens(executor, each) for each in [*late, *others]), return_exceptions=True)
        assert all(isinstance(answer, TimedOutError) for answer in answers[:8])
        assert answers[8:] == [[3, 4, 5, 6, 7]] * 4
        assert await tokens(executor, replace(request("in time"), timeout_s=3600.0)) == [3, 4, 5, 6, 7]

    assert run(story).stats().num_blocks_used == 0


def test_a_dead_thread_fails_everybody_at_once() -> None:
    class BrokenScheduler(Scheduler):
        def schedule(self) -> ScheduledBatch | None:
            if any(seq.seq_id == "fatal" for seq in self.waiting):
                raise KeyError("a bug in the bookkeeping")
            return super().schedule()

    gate = threading.Event()

    async def story(executor: OpenVINOExecutor) -> None:
        bystander = executor.submit(request("bystander", max_tokens=100))
        await anext(bystander)
        fatal = executor.submit(request("fatal"))
        gate.set()
        with pytest.raises(EngineDeadError):
            await anext(fatal)
        with pytest.raises(EngineDeadError):
            [output async for output in bystander]
        assert not executor.is_alive
        with pytest.raises(EngineDeadError):
            executor.submit(request("late"))

    run(story, BrokenScheduler(BlockPool(INFO.num_blocks), INFO.block_size, INFO.max_batch_size, 100), gate)


def test_a_reader_that_lags_gets_everything_in_one_output() -> None:
    async def story(executor: OpenVINOExecutor) -> None:
        lagging = executor.submit(request("lagging", max_tokens=30))
        await tokens(executor, request("other", max_tokens=60))
        output = await anext(lagging)
        assert output.token_ids == tuple((3 + index) % INFO.vocab_size for index in range(30))
        assert output.finish_reason == FinishReason.LENGTH
        assert output.num_cached_tokens == 0
        with pytest.raises(StopAsyncIteration):
            await anext(lagging)

    run(story)


def test_merged_outputs_keep_what_only_the_first_or_the_last_has() -> None:
    first = TokenOutput((1,), logprobs=(TokenLogprob(1, -0.5),), num_cached_tokens=4, prompt_logprobs=())
    last = TokenOutput((2, 3), FinishReason.STOP, logprobs=(TokenLogprob(2, -1.0), TokenLogprob(3, -2.0)))
    assert merge(first, last) == TokenOutput(
        (1, 2, 3), FinishReason.STOP, first.logprobs + last.logprobs, num_cached_tokens=4, prompt_logprobs=()
    )


def test_an_executor_that_was_not_started_is_not_alive_and_refuses() -> None:
    executor = OpenVINOExecutor(EngineCore(CountingRunner(), Scheduler(BlockPool(4), INFO.block_size, 1, 20)), INFO)
    assert not executor.is_alive
    with pytest.raises(EngineDeadError, match="not been started"):
        executor.submit(request("early"))


def test_a_seeded_answer_survives_preemption(tiny_engine: Path) -> None:
    requests = [
        GenerationRequest(str(index), tuple(range(index, index + 40)), SamplingParams(seed=index, top_p=0.9), 60)
        for index in range(6)
    ]

    def answers(config: EngineConfig) -> tuple[list[list[int]], int]:
        async def live() -> tuple[list[list[int]], int]:
            executor = OpenVINOExecutor.load(EngineFolder.load(tiny_engine), config)
            await executor.start()
            found = await asyncio.gather(*(tokens(executor, request) for request in requests))
            num_preemptions = executor.stats().num_preemptions
            await executor.shutdown()
            return found, num_preemptions

        return asyncio.run(live())

    block_gib = 32 * 2 * 2 * 2 * 16 * 2 / 2**30  # bf16 keys and values of 2 layers with 2 heads of 16
    roomy = EngineConfig(kv_cache_gib=100 * block_gib, max_batch_size=8, max_num_tokens=64)
    tight = replace(roomy, kv_cache_gib=13 * block_gib, scheduler_policy="max_utilization")
    expected, none = answers(roomy)
    found, some = answers(tight)
    assert (none, found) == (0, expected)
    assert some > 0


def test_a_guide_that_comes_to_no_end_ends_its_own_sequence_only(tiny_engine: Path) -> None:
    """One mask takes long: the rules are hidden behind a few tokens, so that the guide compiles at once."""
    alternatives = "|".join(f"b{n}" for n in range(800))
    rules = "".join(f'\nb{n}: "x"* "y"* b?' for n in range(800))
    guide = Guide(GuideKind.GRAMMAR, f'start: "once upon a time" b*\nb: {alternatives}{rules}')
    executor = OpenVINOExecutor.load(EngineFolder.load(tiny_engine), EngineConfig(kv_cache_gib=0.01, max_batch_size=4))
    executor._core.masks = MaskFiller(timeout_s=0.01)

    async def story() -> None:
        await executor.start()
        await executor.compile(guide)
        sampling = SamplingParams(temperature=0.0)
        free = executor.submit(GenerationRequest("free", (1, 2, 3), sampling, 20))
        guided = executor.submit(GenerationRequest("guided", (1, 2, 3), sampling, 20, guide=guide))
        with pytest.raises(GuideError, match="too long"):
            async for _ in guided:
                pass
        assert sum([len(output.token_ids) async for output in free]) == 20
        await executor.shutdown()

    asyncio.run(story())
