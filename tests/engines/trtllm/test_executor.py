"""What the TensorRT-LLM executor adds to the contract: refusals by name, priorities, deaths, a bounded shutdown."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engines import (
    EngineConfig,
    EngineDeadError,
    EngineFolder,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideKind,
    PromptEmbeddings,
    SamplingParams,
    StepFailedError,
    TimedOutError,
    UnsupportedFeatureError,
)
from engines.config import TensorRTLLMConfig
from engines.trtllm import executor as executor_module
from engines.trtllm.driver import STATS_PAUSE_S
from engines.trtllm.executor import TRTLLMExecutor
from tests.engines.stories import tell as tell_story
from tests.engines.test_conformance import collect, flat, request_for, tokens

Story = Callable[[TRTLLMExecutor], Awaitable[None]]
Tell = Callable[..., None]
CONFIG = EngineConfig(kv_cache_gib=0.01, max_batch_size=2, max_num_tokens=64)
FIRST_ID = 2  # of a request to TensorRT-LLM


@pytest.fixture
def tell(fake_trtllm: ModuleType, trtllm_engine: Path) -> Tell:
    def run(story: Story, config: EngineConfig = CONFIG, **settings: Any) -> None:
        config = replace(config, trtllm=TensorRTLLMConfig(**settings))
        tell_story(TRTLLMExecutor.load(EngineFolder.load(trtllm_engine), config), story)

    return run


def llm_of(executor: TRTLLMExecutor) -> Any:
    driver: Any = executor._driver
    return driver._llm


def worker_of(executor: TRTLLMExecutor) -> Any:
    return llm_of(executor)._executor


def test_no_more_than_a_batch_is_ever_submitted_and_the_rest_waits_in_order_of_priority(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        order: list[str] = []

        async def ask(name: str, priority: int) -> None:
            await tokens(executor, replace(request_for(name, range(9)), priority=priority))
            order.append(name)

        first = [asyncio.ensure_future(ask(name, 0)) for name in ("a", "b")]
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(ask(name, priority)) for name, priority in (("late", 5), ("soon", -5))]
        await asyncio.sleep(0)
        assert (executor.stats().num_running, executor.stats().num_waiting) == (2, 2)
        await asyncio.gather(*first, *rest)
        assert order.index("soon") < order.index("late")

    tell(story)


def num_submitted(executor: TRTLLMExecutor) -> int:
    return int(llm_of(executor)._next_id) - FIRST_ID


def test_a_waiting_sequence_that_is_cancelled_was_never_submitted(tell: Tell, fake_trtllm: ModuleType) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        running = [executor.submit(request_for(name, range(9), max_tokens=300)) for name in ("a", "b")]
        for stream in running:
            await anext(stream)
        waiting = executor.submit(request_for("c", range(9)))
        await asyncio.sleep(0)
        executor.cancel("c")
        assert await collect(waiting) == []
        assert executor.stats().num_waiting == 0
        assert num_submitted(executor) == len(("warm-up", "a", "b"))
        for name, stream in zip("ab", running, strict=True):
            executor.cancel(name)
            await collect(stream)

    tell(story)


def test_a_sequence_that_is_taken_back_at_once_costs_no_slot(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        executor.submit(request_for("a", range(9)))
        executor.cancel("a")
        assert len(await tokens(executor, request_for("b", range(9)))) == 12
        assert num_submitted(executor) == len(("warm-up", "b"))

    tell(story)


def test_a_slot_whose_abort_is_never_answered_is_free_after_a_while(
    tell: Tell, fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "DRAIN_S", 0.2)

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.refuse_abort = True
        fake_trtllm.STAGE.step_s = 0.05
        stream = executor.submit(request_for("a", range(9), max_tokens=400))
        await anext(stream)
        executor.cancel("a")
        assert executor.stats().num_running == 1
        async with asyncio.timeout(5):
            while executor.stats().num_running:
                await asyncio.sleep(0.02)

    tell(story)


def test_statistics_that_come_late_are_waited_for_at_the_start_and_ever_after(
    tell: Tell, fake_trtllm: ModuleType
) -> None:
    def hold() -> None:
        fake_trtllm.STAGE.hold_stats = True
        Timer(2 * STATS_PAUSE_S, setattr, (fake_trtllm.STAGE, "hold_stats", False)).start()

    async def story(executor: TRTLLMExecutor) -> None:
        assert executor.info.num_blocks > 0
        hold()
        seen = executor.stats().num_steps
        await tokens(executor, request_for("a", range(9)))
        async with asyncio.timeout(20):  # nothing else is submitted
            while executor.stats().num_steps == seen:
                await asyncio.sleep(0.02)

    hold()
    tell(story)


def test_an_engine_that_shuts_down_is_not_asked_to_abort(tell: Tell, fake_trtllm: ModuleType) -> None:
    errors: list[dict[str, Any]] = []

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        stream = executor.submit(request_for("a", range(9), max_tokens=300))
        await anext(stream)
        await executor.shutdown()
        with pytest.raises(EngineDeadError):
            await collect(stream)
        while executor._running:
            await asyncio.sleep(0)

    tell(story)
    gc.collect()
    assert errors == []


def test_an_engine_that_falls_silent_is_dead_however_often_its_clients_try(
    tell: Tell, fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "WATCH_S", 0.01)
    monkeypatch.setattr(executor_module, "DRAIN_S", 0.01)
    monkeypatch.setattr(executor_module, "STALL_S", 0.1)

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.stall = True
        request = replace(request_for("a", range(9)), timeout_s=0.05)
        while executor.is_alive:
            with contextlib.suppress(TimedOutError, EngineDeadError):
                await tokens(executor, request)
        with pytest.raises(EngineDeadError, match=r"silent for 0\.1 s"):
            executor.submit(request)

    tell(story)


def test_an_engine_without_work_may_be_silent(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "WATCH_S", 0.01)
    monkeypatch.setattr(executor_module, "STALL_S", 0.02)

    async def story(executor: TRTLLMExecutor) -> None:
        await asyncio.sleep(0.1)
        assert executor.is_alive

    tell(story)


def test_a_stop_token_on_the_last_place_is_a_stop(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        free = await tokens(executor, request_for("free", range(10), max_tokens=4))
        first = free.index(free[3])
        stopped = replace(
            request_for("stopped", range(10), max_tokens=first + 1), stop_token_ids=frozenset([free[first]])
        )
        outputs = await collect(executor.submit(stopped))
        assert (flat(outputs), outputs[-1].finish_reason) == (free[: first + 1], FinishReason.STOP)

    tell(story)


def test_a_request_that_the_engine_refuses_fails_alone(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        executor._info = replace(executor.info, vocab_size=10**6)  # so that our own check lets it pass
        with pytest.raises(StepFailedError, match="Token ID out of range"):
            await tokens(executor, request_for("a", [10**5]))
        assert len(await tokens(executor, request_for("b", range(9)))) == 12

    tell(story)


def test_a_fatal_error_ends_everything(tell: Tell, fake_trtllm: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        streams = [executor.submit(request_for(name, range(9), max_tokens=300)) for name in "abc"]  # c waits
        await anext(streams[0])
        worker_of(executor).die(ValueError("an illegal memory access was encountered"))
        for stream in streams:
            with pytest.raises(EngineDeadError):
                await collect(stream)
        assert not executor.is_alive
        with pytest.raises(EngineDeadError):
            executor.submit(request_for("late", range(9)))

    tell(story)
    assert "illegal memory access" in caplog.text


def test_a_lost_worker_is_noticed_while_nothing_is_asked(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "WATCH_S", 0.05)

    async def story(executor: TRTLLMExecutor) -> None:
        assert executor.is_alive
        llm_of(executor)._session.processes[1].kill()
        async with asyncio.timeout(5):
            while executor.is_alive:
                await asyncio.sleep(0.02)

    tell(story, tensor_parallel_size=2)
    assert "a worker of TensorRT-LLM is gone" in caplog.text


def test_a_shutdown_that_hangs_is_given_up(
    tell: Tell, fake_trtllm: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    hung: list[bool] = []

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.hang_shutdown = True
        executor._on_hang = lambda: hung.append(True)

    with caplog.at_level(logging.CRITICAL):
        tell(story, shutdown_timeout_s=0.1)
    assert hung == [True]
    assert "did not shut down within 0.1 s" in caplog.text


REFUSED: list[tuple[dict[str, Any], GenerationRequest, str]] = [
    ({}, request_for("r", [1], SamplingParams(logprobs=1)), "gather_generation_logits"),
    ({"sampler": "torch"}, request_for("r", [1], SamplingParams(seed=1)), 'seed .* sampler "torch"'),
    ({"sampler": "torch"}, request_for("r", [1], SamplingParams(min_p=0.1)), "min_p"),
    ({"sampler": "torch"}, request_for("r", [1], SamplingParams(presence_penalty=1.0)), "presence_penalty"),
    (
        {"gather_generation_logits": True},
        replace(request_for("r", [1], SamplingParams(logprobs=1)), guide=Guide(GuideKind.REGEX, "a")),
        "logprobs are not supported beside a guide",
    ),
    (
        {},
        replace(
            request_for("r", [1], SamplingParams(min_tokens=2)),
            guide=Guide(GuideKind.REGEX, "a"),
            stop_token_ids=frozenset([2]),
        ),
        "min_tokens is not supported beside a guide",
    ),
    (
        {},
        replace(
            request_for("r", range(9)), prompt_embeddings=(PromptEmbeddings(0, np.zeros((2, 64), np.float32), b"x"),)
        ),
        "prompt_embeddings is not supported .* of a few models only: serve an engine",
    ),
    (
        {},
        replace(request_for("r", [1], SamplingParams(min_tokens=1)), stop_token_ids=frozenset([2])),
        "min_tokens of 1 .* ask for 0 or 2, or set disable_overlap_scheduler",
    ),
    (
        {"sampler": "torch"},
        request_for("r", [1], SamplingParams(bad_token_sequences=((1,), (2, 3)))),
        "bad_token_sequences of several tokens .* set disable_overlap_scheduler",
    ),
    ({"sampler": "torch", "speculation": "mtp"}, request_for("r", [1], SamplingParams()), "temperature"),
    (
        {"sampler": "torch", "speculation": "ngram"},
        replace(request_for("r", [1]), guide=Guide(GuideKind.REGEX, "a")),
        "guide is not supported with ngram",
    ),
]


@pytest.mark.parametrize(("settings", "request_", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_a_way_of_sampling_ignores_is_refused_by_name(
    tell: Tell, settings: dict[str, Any], request_: GenerationRequest, message: str
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        with pytest.raises(UnsupportedFeatureError, match=message):
            executor.submit(request_)
        assert executor.stats().num_waiting == 0

    tell(story, **settings)


def test_with_the_torch_sampler_stops_bad_words_and_min_tokens_hold_too(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        free = await tokens(executor, request_for("free", range(10)))
        bad = SamplingParams(temperature=0.0, bad_token_sequences=((free[0],),), min_tokens=3)
        answer = await tokens(
            executor, replace(request_for("edited", range(10), bad), stop_token_ids=frozenset(free[:4]))
        )
        assert free[0] not in answer
        assert len(answer) >= 3

    tell(story, sampler="torch")


@pytest.mark.parametrize(
    ("settings", "min_tokens"),
    [
        ({}, 2),
        ({}, 5),
        ({"disable_overlap_scheduler": True}, 1),
        ({"disable_overlap_scheduler": True}, 5),
        ({"pipeline_parallel_size": 2}, 1),
        ({"pipeline_parallel_size": 2}, 5),
    ],
)
def test_min_tokens_hold_for_as_many_tokens_and_no_more(tell: Tell, settings: dict[str, Any], min_tokens: int) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        stops = frozenset(range(1, executor.info.vocab_size))  # all but 0, which is never the best here
        held = request_for("held", range(10), SamplingParams(temperature=0.0, min_tokens=min_tokens), 12)
        answer = await tokens(executor, replace(held, stop_token_ids=stops))
        assert answer[:-1] == [0] * min_tokens
        assert answer[-1] in stops

    tell(story, **settings)


def test_bad_words_of_several_tokens_are_known_where_the_newest_token_is(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        free = await tokens(executor, request_for("free", range(10)))
        bad = SamplingParams(temperature=0.0, bad_token_sequences=((free[0], free[1]),))
        edited = await tokens(executor, request_for("edited", range(10), bad))
        assert edited[0] == free[0]
        assert edited[1] != free[1]

    tell(story, disable_overlap_scheduler=True)


def test_the_settings_reach_tensorrt_llm_by_its_own_names(tell: Tell, fake_trtllm: ModuleType) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        return

    config = replace(CONFIG, kv_cache_fraction=0.5)
    tell(story, config, sampler="torch", speculation="ngram", max_draft_len=3, kv_cache_dtype="fp8", host_cache_gib=1.0)
    arguments = fake_trtllm.STAGE.arguments[0]
    assert arguments["sampler_type"] == "TorchSampler"
    assert arguments["speculative_config"].max_draft_len == 3
    assert arguments["kv_cache_config"].free_gpu_memory_fraction == 0.5
    assert arguments["kv_cache_config"].dtype == "fp8"
    assert arguments["kv_cache_config"].host_cache_size == 2**30
    assert arguments["max_seq_len"] == 512
    assert "guided_decoding_backend" not in arguments
