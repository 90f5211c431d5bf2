"""What every executor must do: this file is the definition of the contract, run against each of them.

An executor joins by a line in LOADERS; it must serve a small random model with a context of 512 tokens.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines import (
    ContextLengthError,
    EngineConfig,
    EngineDeadError,
    EngineFolder,
    Executor,
    ExecutorStats,
    FinishReason,
    GenerationRequest,
    Guide,
    GuideKind,
    InvalidRequestError,
    OverloadedError,
    SamplingParams,
    TokenOutput,
    UnsupportedFeatureError,
    load_executor,
)

Loader = Callable[[pytest.FixtureRequest, EngineConfig], Executor]
Story = Callable[[Executor], Awaitable[None]]

CONFIG = EngineConfig(kv_cache_gib=0.01, max_batch_size=8, max_num_tokens=64)
GREEDY = SamplingParams(temperature=0.0)


def load_openvino(request: pytest.FixtureRequest, config: EngineConfig) -> Executor:
    folder: Path = request.getfixturevalue("tiny_engine")
    return load_executor(EngineFolder.load(folder), config)


LOADERS: dict[str, Loader] = {"openvino": load_openvino}


@pytest.fixture(params=sorted(LOADERS))
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Load a started executor, tell it a story, and see that nothing is left behind."""

    def tell(story: Story, config: EngineConfig = CONFIG) -> None:
        executor = LOADERS[request.param](request, config)

        async def live() -> None:
            await executor.start()
            try:
                await story(executor)
                if executor.is_alive:
                    await is_idle(executor)
            finally:
                await executor.shutdown()

        asyncio.run(live())

    return tell


async def is_idle(executor: Executor) -> ExecutorStats:
    """Wait until nothing runs; every block must be free or cached then."""
    async with asyncio.timeout(20):
        while (stats := executor.stats()).num_running or stats.num_waiting or stats.num_blocks_used:
            await asyncio.sleep(0.002)
    assert stats.num_blocks_free + stats.num_blocks_cached == executor.info.num_blocks
    return stats


def request_for(
    name: str, prompt: list[int] | range, sampling: SamplingParams = GREEDY, max_tokens: int = 12
) -> GenerationRequest:
    return GenerationRequest(name, tuple(prompt), sampling, max_tokens)


async def collect(outputs: AsyncIterator[TokenOutput]) -> list[TokenOutput]:
    return [output async for output in outputs]


async def tokens(executor: Executor, request: GenerationRequest) -> list[int]:
    return [token_id for output in await collect(executor.submit(request)) for token_id in output.token_ids]


def test_a_sequence_gives_max_tokens_and_ends_with_length(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        outputs = await collect(executor.submit(request_for("a", range(10))))
        assert sum(len(output.token_ids) for output in outputs) == 12
        assert [output.finish_reason for output in outputs] == [None] * (len(outputs) - 1) + [FinishReason.LENGTH]
        assert [output.num_cached_tokens for output in outputs] == [0] + [None] * (len(outputs) - 1)
        assert all(0 <= token_id < executor.info.vocab_size for output in outputs for token_id in output.token_ids)

    run(story)


def test_a_stop_token_ends_the_sequence_and_is_its_last_token(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        free = await tokens(executor, request_for("free", range(10)))
        stop = free[3]
        request = replace(request_for("stopped", range(10)), stop_token_ids=frozenset([stop]))
        outputs = await collect(executor.submit(request))
        assert [t for output in outputs for t in output.token_ids] == free[: free.index(stop) + 1]
        assert outputs[-1].finish_reason == FinishReason.STOP

    run(story)


def test_min_tokens_holds_stop_tokens_back(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        every = frozenset(range(executor.info.vocab_size - 1))
        sampling = replace(GREEDY, min_tokens=5)
        request = replace(request_for("a", range(10), sampling), stop_token_ids=every)
        assert await tokens(executor, request) == [executor.info.vocab_size - 1] * 5 + (
            await tokens(executor, request_for("b", [*range(10), *[executor.info.vocab_size - 1] * 5], max_tokens=1))
        )

    run(story)


def test_one_prompt_token_and_a_prompt_that_fills_the_context_are_served(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        limit = executor.info.max_sequence_length
        assert len(await tokens(executor, request_for("one", [7]))) == 12
        prompt = [index % 200 for index in range(limit - 1)]
        assert len(await tokens(executor, request_for("full", prompt, max_tokens=1))) == 1
        with pytest.raises(ContextLengthError, match=f"{limit + 1} were asked for"):
            executor.submit(request_for("over", prompt, max_tokens=2))

    run(story)


def test_a_cached_prefix_is_reported_and_changes_nothing(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        prompt = [index * 7 % 200 for index in range(150)]
        cold = await collect(executor.submit(request_for("cold", prompt)))
        warm = await collect(executor.submit(request_for("warm", prompt)))
        assert cold[0].num_cached_tokens == 0
        assert 96 <= (warm[0].num_cached_tokens or 0) < 150
        assert [output.token_ids for output in cold] == [output.token_ids for output in warm]

    run(story)


def test_a_cache_salt_keeps_prefixes_apart(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        prompt = [index * 7 % 200 for index in range(150)]
        hits = []
        for name, salt in (("a", None), ("b", "tenant"), ("c", "other"), ("d", "tenant")):
            request = replace(request_for(name, prompt), cache_salt=salt)
            hits.append((await collect(executor.submit(request)))[0].num_cached_tokens)
        assert hits[:3] == [0, 0, 0]
        assert hits[3]

    run(story)


SEEDED = [
    GREEDY,
    SamplingParams(seed=11),
    SamplingParams(temperature=0.8, top_p=0.9, seed=12),
    SamplingParams(top_k=5, seed=13),
    SamplingParams(temperature=1.3, min_p=0.1, seed=2**64 - 1),
]


def test_a_seeded_answer_is_the_same_alone_and_in_any_batch(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        alone = [
            await tokens(executor, request_for(f"alone{index}", range(index, index + 40), sampling, 20))
            for index, sampling in enumerate(SEEDED)
        ]
        crowd = [request_for(f"noise{index}", range(index, index + 9 * index + 1)) for index in range(12)]
        together = [
            request_for(f"crowd{index}", range(index, index + 40), sampling, 20)
            for index, sampling in enumerate(SEEDED)
        ]
        answers = await asyncio.gather(*(tokens(executor, request) for request in [*crowd, *together]))
        assert answers[len(crowd) :] == alone

    run(story)


def test_seeds_and_temperatures_matter(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        answers = [
            await tokens(executor, request_for(f"{seed}", range(10), SamplingParams(seed=seed, temperature=2.0)))
            for seed in range(4)
        ]
        assert len({tuple(answer) for answer in answers}) == 4
        unseeded = SamplingParams(temperature=2.0)
        assert await tokens(executor, request_for("a", range(10), unseeded)) != await tokens(
            executor, request_for("b", range(10), unseeded)
        )

    run(story)


def test_more_sequences_than_fit_a_batch_all_end(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        requests = [request_for(str(index), range(index, index + 5 + index)) for index in range(40)]
        answers = await asyncio.gather(*(tokens(executor, request) for request in requests))
        assert [len(answer) for answer in answers] == [12] * 40
        stats = await is_idle(executor)
        assert stats.num_generated_tokens == 480
        assert stats.num_prompt_tokens == sum(len(request.prompt_token_ids) for request in requests)

    run(story)


def test_a_cancelled_sequence_ends_at_once_and_frees_its_blocks(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        running = executor.submit(request_for("running", range(20), max_tokens=400))
        await anext(running)
        executor.cancel("running")
        executor.cancel("running")
        executor.cancel("never there")
        assert sum(len(output.token_ids) for output in await collect(running)) < 399
        waiting = executor.submit(request_for("waiting", range(20), max_tokens=400))
        executor.cancel("waiting")
        assert await collect(waiting) == []
        await is_idle(executor)
        assert len(await tokens(executor, request_for("next", range(20)))) == 12

    run(story)


def test_a_cancelled_neighbour_changes_nothing(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        sampling = SamplingParams(seed=5, top_p=0.9)
        expected = await tokens(executor, request_for("alone", range(30), sampling, 40))
        mine = asyncio.ensure_future(tokens(executor, request_for("mine", range(30), sampling, 40)))
        for index in range(6):
            stream = executor.submit(request_for(f"gone{index}", range(index, index + 50), max_tokens=300))
            await anext(stream)
            executor.cancel(f"gone{index}")
        assert await mine == expected

    run(story)


def with_value(name: str, value: Any) -> SamplingParams:
    return replace(SamplingParams(), **{name: value})


INVALID: list[tuple[str, GenerationRequest]] = [
    ("prompt", request_for("r", [])),
    ("prompt", request_for("r", [1, -1])),
    ("prompt", request_for("r", [10**9])),
    ("max_tokens", request_for("r", [1], max_tokens=0)),
    ("stop_token_ids", replace(request_for("r", [1]), stop_token_ids=frozenset([10**9]))),
    *(
        (name, request_for("r", [1], with_value(name, value)))
        for name, value in (
            ("temperature", -0.1),
            ("temperature", math.nan),
            ("temperature", math.inf),
            ("top_p", 0.0),
            ("top_p", 1.5),
            ("top_p", math.nan),
            ("top_k", -1),
            ("min_p", 2.0),
            ("min_tokens", -1),
            ("min_tokens", 13),
            ("repetition_penalty", 0.0),
            ("presence_penalty", 3.0),
            ("frequency_penalty", math.nan),
            ("logprobs", 21),
            ("prompt_logprobs", -1),
            ("logit_bias", {1: 101.0}),
            ("logit_bias", {-1: 1.0}),
            ("bad_token_sequences", ((),)),
            ("bad_token_sequences", ((10**9,),)),
        )
    ),
]


def test_invalid_requests_are_refused_by_name_and_cost_nothing(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        for param, request in INVALID:
            with pytest.raises(InvalidRequestError) as caught:
                executor.submit(request)
            assert caught.value.param == param
            assert param in caught.value.message
        assert executor.stats().num_waiting == 0
        assert len(await tokens(executor, request_for("r", [1]))) == 12

    run(story)


EVERY_FIELD = [
    replace(GREEDY, repetition_penalty=1.3),
    replace(GREEDY, presence_penalty=0.5),
    replace(GREEDY, frequency_penalty=0.5),
    replace(GREEDY, logit_bias={3: 100.0}),
    replace(GREEDY, bad_token_sequences=((1, 2), (3,))),
    replace(GREEDY, logprobs=2),
    replace(GREEDY, prompt_logprobs=2),
]


@pytest.mark.parametrize("sampling", EVERY_FIELD, ids=str)
def test_a_field_is_honoured_or_refused_by_name(run: Callable[..., None], sampling: SamplingParams) -> None:
    async def story(executor: Executor) -> None:
        plain = await collect(executor.submit(request_for("plain", range(20))))
        (name,) = [name for name in SamplingParams.__slots__ if getattr(sampling, name) != getattr(GREEDY, name)]
        refused = None
        try:
            outputs = await collect(executor.submit(request_for("mine", range(20), sampling)))
        except UnsupportedFeatureError as refusal:
            refused = refusal.param
        if refused is not None:
            assert refused == name
            return
        assert [replace(output, num_cached_tokens=None) for output in outputs] != [
            replace(output, num_cached_tokens=None) for output in plain
        ]

    run(story)


@pytest.mark.parametrize("kind", list(GuideKind))
def test_a_guide_compiles_or_is_refused(run: Callable[..., None], kind: GuideKind) -> None:
    async def story(executor: Executor) -> None:
        with pytest.raises(InvalidRequestError):
            await executor.compile(Guide(kind, "{ [ ( not valid in any of them"))
        assert executor.is_alive

    run(story)


def test_overload_is_refused_and_nothing_is_queued(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        room = executor.info.max_batch_size + executor.info.max_waiting
        streams = [executor.submit(request_for(str(index), range(8))) for index in range(room)]
        with pytest.raises(OverloadedError) as caught:
            executor.submit(request_for("one too many", range(8)))
        assert caught.value.retry_after_s >= 1
        assert all(len(answer) for answer in await asyncio.gather(*map(collect, streams)))
        assert len(await tokens(executor, request_for("later", range(8)))) == 12

    run(story, replace(CONFIG, max_batch_size=2, max_waiting=3))


def test_a_request_larger_than_the_cache_is_refused(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        tokens_in_cache = executor.info.num_blocks * executor.info.block_size
        assert tokens_in_cache < executor.info.max_sequence_length
        with pytest.raises(ContextLengthError, match=f"KV cache holds {tokens_in_cache} tokens"):
            executor.submit(request_for("big", range(200), max_tokens=tokens_in_cache - 199))
        assert len(await tokens(executor, request_for("fits", range(100)))) == 12

    run(story, replace(CONFIG, kv_cache_gib=0.0001))


def test_shutdown_ends_live_sequences_with_an_error_and_refuses_new_ones(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        assert executor.is_alive
        stream = executor.submit(request_for("live", range(8), max_tokens=400))
        await anext(stream)
        await executor.shutdown()
        await executor.shutdown()
        assert not executor.is_alive
        with pytest.raises(EngineDeadError):
            await collect(stream)
        with pytest.raises(EngineDeadError):
            executor.submit(request_for("new", range(8)))

    run(story)


def test_two_requests_at_once_with_one_seq_id_are_a_bug_of_the_caller(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        executor.submit(request_for("same", range(8)))
        with pytest.raises(AssertionError):
            executor.submit(request_for("same", range(8)))
        executor.cancel("same")

    run(story)
