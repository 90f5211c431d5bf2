"""What the driver of prebuilt engines adds to the contract: refusals with the fix, images, lookahead, deaths."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engines import (
    ContextLengthError,
    EngineConfig,
    EngineDeadError,
    EngineFolder,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideError,
    GuideKind,
    Mrope,
    PromptEmbeddings,
    SamplingParams,
    StepFailedError,
    UnsupportedFeatureError,
)
from engines.config import TensorRTLLMConfig
from engines.trtllm import executor as executor_module
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.executor import TRTLLMExecutor
from engines.trtllm.prebuilt.driver import MAX_FAILED_STEPS
from engines.trtllm.prebuilt.requests import number_of
from tests.engines.stories import tell as tell_story
from tests.engines.test_conformance import collect, flat, request_for, tokens
from tests.trtllm_fixtures import adopt_prebuilt

Story = Callable[[TRTLLMExecutor], Awaitable[None]]
Tell = Callable[..., None]
Build = Callable[..., Path]
CONFIG = EngineConfig(kv_cache_gib=0.01, max_batch_size=2, max_num_tokens=64)
WITHOUT_REUSE = {"enable_block_reuse": False, "enable_chunked_prefill": False}
LOOKAHEAD = {"speculative_decoding_mode": 8, "max_draft_len": 15}


@pytest.fixture
def build(fake_trtllm: ModuleType, tiny_checkpoint: Path, tmp_path: Path) -> Build:
    """Build an engine; the fields change its build_config, those in `plugins` its plugin_config."""

    def adopted(tp_size: int = 1, **fields: Any) -> Path:
        return adopt_prebuilt(tiny_checkpoint, tmp_path, tp_size, **fields)

    return adopted


@pytest.fixture
def tell(fake_trtllm: ModuleType, trtllm_prebuilt: Path) -> Tell:
    def run(story: Story, folder: Path = trtllm_prebuilt, config: EngineConfig = CONFIG, **settings: Any) -> None:
        tell_story(load(folder, config, **settings), story)

    return run


def load(folder: Path, config: EngineConfig = CONFIG, **settings: Any) -> TRTLLMExecutor:
    return TRTLLMExecutor.load(EngineFolder.load(folder), replace(config, trtllm=TensorRTLLMConfig(**settings)))


def cpp(executor: TRTLLMExecutor) -> Any:
    """The fake's executor behind ours."""
    driver: Any = executor._driver
    return driver._executor


async def nothing(executor: TRTLLMExecutor) -> None:
    return


# What is refused before anything is loaded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "torch"}, "sampler is a setting for checkpoints"),
        ({"load_format": "dummy"}, "load_format is a setting for checkpoints"),
        ({"cuda_graphs": False}, "cuda_graphs is a setting for checkpoints"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size = 2, but prebuilt was built for 1"),
        ({"lookahead": (4, 3, 4)}, r"without lookahead.*lookahead_decoding --max_draft_len 15"),
    ],
)
def test_settings_that_an_engine_cannot_have_are_refused_by_name(
    trtllm_prebuilt: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TensorRTLLMError, match=message):
        load(trtllm_prebuilt, **settings)


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ({"speculative_decoding_mode": 4}, {}, "built for medusa, which this server does not run"),
        (LOOKAHEAD, {}, r"set lookahead, such as \[4, 3, 4\]"),
        (
            {"speculative_decoding_mode": 8, "max_draft_len": 12},
            {"lookahead": (4, 3, 4)},
            r"lookahead = \[4, 3, 4\] guesses 15 tokens, but prebuilt was built for 12.*--max_draft_len 15",
        ),
    ],
)
def test_engines_that_guess_otherwise_than_the_settings_say_are_refused(
    build: Build, fields: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TensorRTLLMError, match=message):
        load(build(**fields), **settings)


@pytest.mark.parametrize(
    ("plugins", "settings", "message"),
    [
        ({"use_paged_context_fmha": False}, {}, "set enable_block_reuse = false, or build it with --use_paged"),
        ({"use_paged_context_fmha": False}, {"enable_block_reuse": False}, "set enable_chunked_prefill = false"),
    ],
)
def test_an_engine_without_paged_context_attention_is_refused_with_the_fix(
    build: Build, plugins: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TensorRTLLMError, match=message):
        load(build(plugins=plugins), **settings)


def test_an_engine_without_a_paged_cache_is_refused(build: Build) -> None:
    with pytest.raises(TensorRTLLMError, match="--kv_cache_type paged"):
        load(build(kv_cache_type="CONTINUOUS", plugins={"paged_kv_cache": False}))


def test_streaming_without_chunks_needs_a_scheduler_that_keeps_what_it_started(trtllm_prebuilt: Path) -> None:
    config = replace(CONFIG, scheduler_policy="max_utilization")
    with pytest.raises(TensorRTLLMError, match="max_utilization streams only with enable_chunked_prefill"):
        load(trtllm_prebuilt, config, enable_chunked_prefill=False)


def test_an_engine_of_another_release_is_refused(
    build: Build, fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorrt_llm.__version__", "1.2.0")
    with pytest.raises(TensorRTLLMError, match=r"built with TensorRT-LLM 1\.2\.1, and 1\.2\.0 is installed"):
        load(build())


def test_too_few_gpus_are_refused(build: Build, fake_trtllm: ModuleType) -> None:
    fake_trtllm.STAGE.num_visible_gpus = 1
    with pytest.raises(TensorRTLLMError, match="built for 2 GPUs per node, but 1 can be seen"):
        load(build(tp_size=2))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TLLM_SPAWN_PROXY_PROCESS": "1"}, "trtllm-llmapi-launch is for checkpoints"),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, "3 processes were started.*built for 2 GPUs"),
    ],
)
def test_a_launch_that_does_not_fit_the_engine_is_refused(
    build: Build, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], message: str
) -> None:
    folder = build(tp_size=2)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TensorRTLLMError, match=message):
        load(folder)


def test_a_package_without_the_worker_s_program_is_refused(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tp_size=2)
    monkeypatch.setattr("tensorrt_llm.__file__", str(folder / "__init__.py"))
    with pytest.raises(TensorRTLLMError, match=r"lacks .*executorWorker; start the server with mpirun"):
        load(folder)


def test_a_kv_cache_of_unknown_size_needs_a_share_of_the_memory(build: Build, tell: Tell) -> None:
    folder = build(quantization={"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"})
    with pytest.raises(TensorRTLLMError, match="set kv_cache_fraction instead of kv_cache_gib"):
        load(folder)
    tell(nothing, folder, replace(CONFIG, kv_cache_fraction=0.5))


# What single requests are refused for


def image(start: int, num_rows: int, seed: int = 1) -> PromptEmbeddings:
    rows = np.random.default_rng(seed).normal(0, 3, (num_rows, 64)).astype(np.float32)
    return PromptEmbeddings(start, rows, f"image {seed}".encode())


MIN_TOKENS = replace(request_for("r", [1], SamplingParams(min_tokens=1)), stop_token_ids=frozenset([2]))
GUIDED = replace(request_for("r", [1]), guide=Guide(GuideKind.REGEX, "a"))
REFUSED: list[tuple[dict[str, Any], dict[str, Any], GenerationRequest, str]] = [
    ({}, {}, request_for("r", [1], SamplingParams(logprobs=1)), "logprobs need gather_generation_logits = true"),
    (
        {"gather_context_logits": False},
        {"gather_generation_logits": True},
        request_for("r", [1], SamplingParams(prompt_logprobs=1)),
        "prompt_logprobs are not supported: .*build it anew with --gather_context_logits",
    ),
    ({}, {}, replace(request_for("r", range(9)), prompt_embeddings=(image(0, 2),)), "build it anew with --max_multim"),
    (
        {"max_prompt_embedding_table_size": 64},
        {},
        replace(request_for("r", range(9)), mrope=Mrope(np.zeros(8, np.float32), 0)),
        "mrope is not supported: the engine was built without mrope",
    ),
    (LOOKAHEAD, {"lookahead": (4, 3, 4)}, request_for("r", [1], SamplingParams()), "temperature .* engine, lookahead"),
    (LOOKAHEAD, {"lookahead": (4, 3, 4)}, GUIDED, "guide is not supported"),
    ({"tp_size": 2}, {}, GUIDED, "guide is not supported: .*start it with mpirun"),
    ({"tp_size": 2}, {}, MIN_TOKENS, "min_tokens is not supported: .*start it with mpirun"),
]


@pytest.mark.parametrize(("fields", "settings", "request_", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_an_engine_cannot_do_is_refused_by_name(
    tell: Tell,
    build: Build,
    fields: dict[str, Any],
    settings: dict[str, Any],
    request_: GenerationRequest,
    message: str,
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        with pytest.raises(UnsupportedFeatureError, match=message):
            executor.submit(request_)

    tell(story, build(**fields), **settings)


def test_a_prompt_longer_than_a_step_needs_chunks(tell: Tell, build: Build) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        assert len(await tokens(executor, request_for("fits", range(64)))) == 12
        with pytest.raises(ContextLengthError, match="a prompt may have 64 tokens while enable_chunked_prefill is off"):
            executor.submit(request_for("long", range(65)))

    tell(story, build(plugins={"use_paged_context_fmha": False}), **WITHOUT_REUSE)


# Tokens


def test_several_stop_tokens_each_stay_the_last_token(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        free = await tokens(executor, request_for("free", range(10)))
        for stops in ({free[2]}, {free[2], free[5]}, {free[5], 7}):
            request = replace(request_for("stopped", range(10)), stop_token_ids=frozenset(stops))
            outputs = await collect(executor.submit(request))
            end = next(index for index, token_id in enumerate(free) if token_id in stops)
            assert (flat(outputs), outputs[-1].finish_reason) == (free[: end + 1], FinishReason.STOP)

    tell(story)


def test_lookahead_gives_the_same_greedy_tokens_several_at_a_time(tell: Tell, build: Build) -> None:
    expected: list[int] = []

    async def plainly(executor: TRTLLMExecutor) -> None:
        expected.extend(await tokens(executor, request_for("a", range(10), max_tokens=30)))

    async def ahead(executor: TRTLLMExecutor) -> None:
        assert executor.info.max_sequence_length == 512 - 15
        driver: Any = executor._driver
        generation = driver.generate(request_for("b", range(10), max_tokens=30), None)
        sizes = [len(output.token_ids) async for output in generation]
        assert max(sizes) > 1
        assert await tokens(executor, request_for("a", range(10), max_tokens=30)) == expected
        stopped = replace(request_for("s", range(10), max_tokens=30), stop_token_ids=frozenset([expected[7]]))
        assert await tokens(executor, stopped) == expected[: expected.index(expected[7]) + 1]

    tell(plainly)
    tell(ahead, build(**LOOKAHEAD), lookahead=(4, 3, 4))


def test_a_batch_of_responses_wakes_the_loop_once(
    tell: Tell, fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        loop, wakes = asyncio.get_running_loop(), []
        call = loop.call_soon_threadsafe

        def counted(callback: Any, *arguments: Any, **options: Any) -> Any:
            wakes.append(arguments)
            return call(callback, *arguments, **options)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        fake_trtllm.STAGE.step_s = 0.01
        await asyncio.gather(*(tokens(executor, request_for(name, range(9), max_tokens=20)) for name in "ab"))
        num_tokens = 40
        assert len(wakes) <= num_tokens - 10
        assert max(len(batch) for (batch,) in wakes) == 2

    tell(story)


def test_an_aborted_generation_brings_nothing_more_and_ends(tell: Tell, fake_trtllm: ModuleType) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        driver: Any = executor._driver
        generation = driver.generate(request_for("a", range(10), max_tokens=400), None)
        outputs = aiter(generation)
        await anext(outputs)
        generation.abort()
        generation.abort()
        assert not generation.finished
        num_before = generation._inbox.qsize()
        assert len([output async for output in outputs]) <= num_before
        assert generation.finished

    tell(story)


# Images


def test_an_image_takes_the_place_of_its_tokens(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        two = (image(4, 6, seed=1), image(20, 3, seed=2))
        first = await tokens(executor, replace(request_for("a", range(24)), prompt_embeddings=two))
        ignored = [*range(4), *[99] * 6, *range(10, 20), *[99] * 3, 23]
        assert await tokens(executor, replace(request_for("b", ignored), prompt_embeddings=two)) == first
        other = (two[0], image(20, 3, seed=3))
        assert await tokens(executor, replace(request_for("c", range(24)), prompt_embeddings=other)) != first

    tell(story)


def test_two_images_never_share_blocks_and_one_shares_with_itself(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        cached, answers = [], []
        for name, seed in (("a", 1), ("b", 2), ("a again", 1)):
            request = replace(request_for(name, range(100)), prompt_embeddings=(image(40, 60, seed=seed),))
            outputs = await collect(executor.submit(request))
            cached.append(outputs[0].num_cached_tokens)
            answers.append(flat(outputs))
        assert cached == [0, 32, 96]  # the text before the image is shared by all
        assert answers[0] == answers[2] != answers[1]

    tell(story)


def test_images_larger_than_a_request_s_share_of_the_table_are_refused(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        with pytest.raises(ContextLengthError, match="images of a request may have 64 tokens, but have 65"):
            executor.submit(replace(request_for("r", range(99)), prompt_embeddings=(image(0, 65),)))
        fits = replace(request_for("r", range(99)), prompt_embeddings=(image(0, 64),))
        assert len(await tokens(executor, fits)) == 12

    tell(story)


def test_rotary_positions_travel_with_the_images(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        request = replace(
            request_for("r", range(20)),
            prompt_embeddings=(image(0, 4),),
            mrope=Mrope(np.arange(8, dtype=np.float32), -3),
        )
        driver: Any = executor._driver
        made = driver._translator.translate(request, "tenant", 5).request
        assert made.mrope_config.mrope_position_deltas == -3
        assert made.mrope_config.mrope_rotary_cos_sin.numpy().tolist() == list(range(8))
        assert made.input_token_ids[:5] == [executor.info.vocab_size + row for row in range(4)] + [4]
        assert made.prompt_tuning_config.input_token_extra_ids == [number_of(b"image 1")] * 4 + [0] * 16
        assert made.prompt_tuning_config.embedding_table.dtype == "float16"
        assert made.cache_salt_id == number_of(b"tenant")
        assert len(await tokens(executor, request)) == 12

    tell(story)


# Ends


def test_a_step_that_fails_ends_its_own_requests_and_the_engine_goes_on(tell: Tell, fake_trtllm: ModuleType) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        for turn in range(2):  # what works in between starts the count of failures anew
            for number in range(MAX_FAILED_STEPS - 1):
                fake_trtllm.STAGE.broken_steps = 1
                with pytest.raises(StepFailedError, match="illegal memory access"):
                    await tokens(executor, request_for(f"{turn}-{number}", range(9)))
            assert len(await tokens(executor, request_for(f"{turn}", range(9)))) == 12
        driver: Any = executor._driver
        assert driver.failure() is None

    tell(story)


def test_steps_that_fail_one_after_the_other_are_the_end(
    tell: Tell, fake_trtllm: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "WATCH_S", 0.02)

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.broken_steps = 10**6
        for number in range(MAX_FAILED_STEPS):
            with pytest.raises((StepFailedError, EngineDeadError)):
                await tokens(executor, request_for(str(number), range(9)))
        async with asyncio.timeout(5):
            while executor.is_alive:
                await asyncio.sleep(0.01)

    tell(story)
    assert "3 steps of TensorRT-LLM failed in a row" in caplog.text


def test_a_guide_that_cannot_be_followed_fails_alone(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        guide = Guide(GuideKind.REGEX, "[a-z]{9}")
        await executor.compile(guide)
        stream = executor.submit(replace(request_for("a", range(9)), guide=guide))
        monkeypatch.setattr("engines.guides.GuideMatcher.error", "too many items")
        with pytest.raises(GuideError, match="too many items"):
            await collect(stream)
        assert len(await tokens(executor, request_for("b", range(9)))) == 12

    tell(story)


def test_a_shutdown_cancels_what_runs_instead_of_waiting_for_its_end(tell: Tell, fake_trtllm: ModuleType) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.step_s = 0.05
        stream = executor.submit(request_for("a", range(9), max_tokens=400))  # 20 s
        await anext(stream)
        async with asyncio.timeout(5):
            await executor.shutdown()
        with pytest.raises(EngineDeadError):
            await collect(stream)

    tell(story)


def test_a_shutdown_that_hangs_is_given_up(
    tell: Tell, fake_trtllm: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    hung: list[bool] = []

    async def story(executor: TRTLLMExecutor) -> None:
        fake_trtllm.STAGE.hang_shutdown = True
        executor._on_hang = lambda: hung.append(True)

    with caplog.at_level(logging.CRITICAL):
        tell(story, shutdown_timeout_s=0.3)
    assert hung == [True]


def test_a_lost_worker_is_noticed_while_nothing_is_asked(
    tell: Tell, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "WATCH_S", 0.05)

    async def story(executor: TRTLLMExecutor) -> None:
        assert executor.is_alive
        cpp(executor)._ranks.processes[1].kill()
        async with asyncio.timeout(5):
            while executor.is_alive:
                await asyncio.sleep(0.02)

    tell(story, build(tp_size=2))
    assert "a worker of TensorRT-LLM is gone" in caplog.text


def test_the_settings_reach_the_executor_by_its_own_names(tell: Tell, fake_trtllm: ModuleType) -> None:
    config = replace(CONFIG, kv_cache_fraction=0.5, scheduler_policy="max_utilization")
    tell(nothing, config=config, host_cache_gib=1.0, max_attention_window=(256,), gather_generation_logits=True)
    made = fake_trtllm.STAGE.arguments[0]
    assert made.kv_cache_config.free_gpu_memory_fraction == 0.5
    assert made.kv_cache_config.host_cache_size == 2**30
    assert made.kv_cache_config.max_attention_window == [256]
    assert made.kv_cache_config.enable_partial_reuse is False
    assert made.scheduler_config.capacity_scheduler_policy.name == "MAX_UTILIZATION"
    assert (made.enable_chunked_context, made.gather_generation_logits) == (True, True)
    assert (made.max_batch_size, made.max_num_tokens) == (2, 64)


def test_an_engine_s_own_limits_lower_those_of_the_settings(tell: Tell) -> None:
    async def story(executor: TRTLLMExecutor) -> None:
        assert executor.info.max_batch_size == 8
        assert executor.info.hidden_size == 64

    tell(story, config=EngineConfig(kv_cache_gib=0.01, max_batch_size=256, max_num_tokens=8192))
