"""What every executor must do: this file is the definition of the contract, run against each of them.

An executor joins by a line in LOADERS; it must serve a small random model with a context of 512 tokens.
"""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

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
    PromptEmbeddings,
    SamplingParams,
    TimedOutError,
    TokenOutput,
    UnsupportedFeatureError,
    load_executor,
)
from engines.config import TensorRTLLMConfig

Loader = Callable[[pytest.FixtureRequest, EngineConfig], Executor]
Story = Callable[[Executor], Awaitable[None]]

CONFIG = EngineConfig(kv_cache_gib=0.01, max_batch_size=8, max_num_tokens=64)
GREEDY = SamplingParams(temperature=0.0)


def load_openvino(request: pytest.FixtureRequest, config: EngineConfig) -> Executor:
    folder: Path = request.getfixturevalue("tiny_engine")
    return load_executor(EngineFolder.load(folder), config)


def load_trtllm(request: pytest.FixtureRequest, config: EngineConfig) -> Executor:
    request.getfixturevalue("fake_trtllm")
    folder: Path = request.getfixturevalue("trtllm_engine")
    # without the one logprobs are refused, without the other bad words of several tokens
    settings = TensorRTLLMConfig(gather_generation_logits=True, disable_overlap_scheduler=True)
    return load_executor(EngineFolder.load(folder), replace(config, trtllm=settings))


def load_trtllm_engine(request: pytest.FixtureRequest, config: EngineConfig) -> Executor:
    request.getfixturevalue("fake_trtllm")
    folder: Path = request.getfixturevalue("trtllm_prebuilt")
    settings = TensorRTLLMConfig(gather_generation_logits=True)
    return load_executor(EngineFolder.load(folder), replace(config, trtllm=settings))


LOADERS: dict[str, Loader] = {
    "openvino": load_openvino,
    "trtllm": load_trtllm,
    "trtllm-engine": load_trtllm_engine,
}


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


def flat(outputs: list[TokenOutput]) -> list[int]:
    """The tokens alone: how many come at a time is up to the executor and to how fast they are read."""
    return [token_id for output in outputs for token_id in output.token_ids]


async def tokens(executor: Executor, request: GenerationRequest) -> list[int]:
    return flat(await collect(executor.submit(request)))


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
        assert flat(cold) == flat(warm)

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
        assert len(flat(await collect(running))) < 400  # it ends, with what had come by then
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


EVERYTHING: dict[str, SamplingParams] = {  # a row for each field that changes how a token is drawn or reported
    "greedy": GREEDY,
    "temperature": SamplingParams(temperature=1.4, seed=1),
    "top_k": SamplingParams(top_k=4, seed=2),
    "top_p": SamplingParams(top_p=0.8, seed=3),
    "min_p": SamplingParams(min_p=0.2, seed=4),
    "repetition_penalty": SamplingParams(repetition_penalty=1.5, seed=5),
    "presence_penalty": SamplingParams(presence_penalty=1.5, seed=6),
    "frequency_penalty": SamplingParams(frequency_penalty=1.5, seed=7),
    "logit_bias": SamplingParams(logit_bias={5: 3.0, 6: -100.0}, seed=8),
    "bad_token_sequences": SamplingParams(bad_token_sequences=((7,), (8, 9)), seed=9),
    "logprobs": SamplingParams(logprobs=3, seed=10),
    "prompt_logprobs": SamplingParams(prompt_logprobs=2, seed=11),
    "min_tokens": SamplingParams(min_tokens=6, seed=12),
    "all at once": SamplingParams(
        temperature=0.9,
        top_k=40,
        top_p=0.95,
        min_p=0.01,
        seed=13,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.2,
        logit_bias={5: 1.0},
        bad_token_sequences=((7, 8),),
        logprobs=2,
        min_tokens=3,
    ),
}


def whole(outputs: list[TokenOutput]) -> tuple[object, ...]:
    """All that a sequence gave, however it was cut into outputs."""
    logprobs = [logprob for output in outputs for logprob in output.logprobs]
    return flat(outputs), outputs[-1].finish_reason, logprobs, outputs[0].prompt_logprobs


def test_every_field_gives_the_same_alone_in_a_batch_and_read_late(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        served: dict[str, GenerationRequest] = {}
        alone: dict[str, tuple[object, ...]] = {}
        for name, sampling in EVERYTHING.items():
            request = replace(request_for(name, range(30), sampling, 20), stop_token_ids=frozenset(range(40, 60)))
            with contextlib.suppress(UnsupportedFeatureError):
                alone[name] = whole(await collect(executor.submit(request)))
                served[name] = request
        assert {"greedy", "temperature", "top_k", "top_p"} <= set(served)

        async def again(name: str) -> tuple[object, ...]:
            request = replace(served[name], seq_id=f"{name} again")
            while True:
                try:
                    return whole(await collect(executor.submit(request)))
                except OverloadedError:
                    await asyncio.sleep(0.002)

        assert dict(zip(served, await asyncio.gather(*map(again, served)), strict=True)) == alone
        late = executor.submit(replace(served["greedy"], seq_id="late"))
        await again("top_p")
        assert whole(await collect(late)) == alone["greedy"]

    run(story)


def test_five_hundred_at_once_end_or_are_refused(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        requests = [request_for(str(index), range(index % 90, index % 90 + 20), max_tokens=3) for index in range(500)]
        streams, num_refused = [], 0
        for request in requests:
            try:
                streams.append(executor.submit(request))
            except OverloadedError:
                num_refused += 1
        assert len(streams) == executor.info.max_batch_size + executor.info.max_waiting
        assert num_refused == 500 - len(streams)
        assert [len(flat(outputs)) for outputs in await asyncio.gather(*map(collect, streams))] == [3] * len(streams)

    run(story)


def test_a_sequence_past_its_deadline_fails_alone(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        late = [replace(request_for(f"late{index}", range(20), max_tokens=400), timeout_s=1e-6) for index in range(10)]
        others = [replace(request_for(f"other{index}", range(20)), timeout_s=3600.0) for index in range(4)]
        answers = await asyncio.gather(*(tokens(executor, each) for each in [*late, *others]), return_exceptions=True)
        assert all(isinstance(answer, TimedOutError) for answer in answers[:10])
        assert all(isinstance(answer, list) and len(answer) == 12 for answer in answers[10:])

    run(story)


INVALID: list[tuple[str, GenerationRequest]] = [
    ("prompt", request_for("r", [])),
    ("prompt", request_for("r", [1, -1])),
    ("prompt", request_for("r", [10**9])),
    ("max_tokens", request_for("r", [1], max_tokens=0)),
    ("timeout_s", replace(request_for("r", [1]), timeout_s=0.0)),
    ("timeout_s", replace(request_for("r", [1]), timeout_s=math.nan)),
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
            ("top_k", 2**31),
            ("min_p", 2.0),
            ("min_tokens", -1),
            ("min_tokens", 13),
            ("repetition_penalty", 0.0),
            ("repetition_penalty", 1e-40),
            ("repetition_penalty", 1e39),
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


Field = tuple[str, Callable[[list[int]], Any]]

EVERY_FIELD: list[Field] = [  # a value that must change a greedy answer, given the plain one
    ("repetition_penalty", lambda plain: 5.0),
    ("presence_penalty", lambda plain: 2.0),
    ("frequency_penalty", lambda plain: 2.0),
    ("logit_bias", lambda plain: {plain[1] + 1: 100.0}),
    ("bad_token_sequences", lambda plain: ((plain[0],), (plain[1], plain[2]))),
    ("logprobs", lambda plain: 2),
    ("prompt_logprobs", lambda plain: 2),
]


@pytest.mark.parametrize("field", EVERY_FIELD, ids=lambda field: str(field[0]))
def test_a_field_is_honoured_or_refused_by_name(run: Callable[..., None], field: Field) -> None:
    name, value = field

    async def story(executor: Executor) -> None:
        plain = await collect(executor.submit(request_for("plain", range(20), max_tokens=30)))
        answer = [token_id for output in plain for token_id in output.token_ids]
        request = request_for("mine", range(20), replace(GREEDY, **{name: value(answer)}), max_tokens=30)
        refused = None
        try:
            outputs = await collect(executor.submit(request))
        except UnsupportedFeatureError as refusal:
            refused = refusal.param
        if refused is not None:
            assert refused == name
            return
        assert [replace(output, num_cached_tokens=None) for output in outputs] != [
            replace(output, num_cached_tokens=None) for output in plain
        ]

    run(story)


def test_logprobs_are_those_of_the_raw_distribution(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        sampling = SamplingParams(seed=3, temperature=0.7, top_k=3, logprobs=5, logit_bias={1: -100.0})
        outputs = await collect(executor.submit(request_for("a", range(20), sampling)))
        logprobs = [logprob for output in outputs for logprob in output.logprobs]
        assert [logprob.token_id for logprob in logprobs] == [t for output in outputs for t in output.token_ids]
        for logprob in logprobs:
            values = [value for _, value in logprob.alternatives]
            assert len(values) == 5
            assert values == sorted(values, reverse=True)
            assert all(value <= 0 for value in [*values, logprob.logprob])
            assert dict(logprob.alternatives).get(logprob.token_id, logprob.logprob) == logprob.logprob

    run(story)


def test_zero_logprobs_report_the_sampled_token_only(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        outputs = await collect(executor.submit(request_for("a", range(20), replace(GREEDY, logprobs=0))))
        assert all(len(output.logprobs) == len(output.token_ids) for output in outputs)
        assert not any(logprob.alternatives for output in outputs for logprob in output.logprobs)

    run(story)


def test_prompt_logprobs_cover_the_whole_prompt_chunked_or_cached(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        prompt = [index * 7 % 200 for index in range(150)]
        await tokens(executor, request_for("fill the cache", prompt))
        sampling = replace(GREEDY, prompt_logprobs=3)
        first, second = [await collect(executor.submit(request_for(name, prompt, sampling))) for name in ("a", "b")]
        report = first[0].prompt_logprobs
        assert report is not None
        assert [logprob.token_id for logprob in report] == prompt[1:]
        assert all(len(logprob.alternatives) == 3 for logprob in report)
        assert report == second[0].prompt_logprobs
        plain = await collect(executor.submit(request_for("plain", prompt)))
        assert flat(plain) == flat(first)
        assert all(output.prompt_logprobs is None for output in first[1:])

    run(story)


INVALID_GUIDES = [
    Guide(GuideKind.JSON_SCHEMA, "{ not json"),
    Guide(GuideKind.JSON_SCHEMA, '{"type": "nothing known"}'),
    Guide(GuideKind.JSON_SCHEMA, '{"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": true}}}'),
    Guide(GuideKind.JSON_SCHEMA, "[" * 5000 + "]" * 5000),
    Guide(GuideKind.JSON_SCHEMA, '{"properties": ' * 100 + "{}" + "}" * 100),
    Guide(GuideKind.REGEX, "[a-z]+("),
    Guide(GuideKind.CHOICE, "[]"),
    Guide(GuideKind.CHOICE, '{"a": 1}'),
    Guide(GuideKind.GRAMMAR, "start: nowhere"),
    Guide(GuideKind.GRAMMAR, "{ [ ("),
    Guide(GuideKind.REGEX, "a" * 10**6),
]


@pytest.mark.parametrize("guide", INVALID_GUIDES, ids=lambda guide: f"{guide.kind}-{guide.source[:20]}")
def test_a_guide_that_does_not_compile_is_refused_and_harms_nobody(run: Callable[..., None], guide: Guide) -> None:
    async def story(executor: Executor) -> None:
        bystander = asyncio.ensure_future(tokens(executor, request_for("bystander", range(20))))
        with pytest.raises(InvalidRequestError) as caught:
            await executor.compile(guide)
        assert caught.value.param == "guide"
        assert len(await bystander) == 12

    run(story)


def test_a_guided_answer_follows_its_guide(run: Callable[..., None], tiny_engine: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_engine / "tokenizer.json"))
    end = int(tokenizer.token_to_id("<|im_end|>") or 0)
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "size": {"enum": [1, 22]}},
        "required": ["name", "size"],
        "additionalProperties": False,
    }
    guides = {
        Guide(GuideKind.CHOICE, '["north", "south west"]'): r"north|south west",
        Guide(GuideKind.REGEX, "[0-9]{3}-[a-c]+x"): r"[0-9]{3}-[a-c]+x",
        Guide(GuideKind.JSON_SCHEMA, json.dumps(schema)): r"\{.*\}",
        Guide(GuideKind.GRAMMAR, 'start: ("ab" | "cd")+ "."'): r"(ab|cd)+\.",
        Guide(GuideKind.GRAMMAR, 'root ::= "yes" | "no"'): r"yes|no",
    }

    async def answer(executor: Executor, name: str, guide: Guide, seed: int) -> str | None:
        try:
            await executor.compile(guide)
        except UnsupportedFeatureError:
            return None
        request = replace(
            request_for(name, range(20), SamplingParams(seed=seed, logit_bias={end: 3.0}), 300),
            guide=guide,
            stop_token_ids=frozenset([end]),
        )
        outputs = await collect(executor.submit(request))
        assert outputs[-1].finish_reason == FinishReason.STOP
        return str(tokenizer.decode([t for output in outputs for t in output.token_ids]))

    async def story(executor: Executor) -> None:
        texts = await asyncio.gather(
            *(answer(executor, f"{index}-{seed}", guide, seed) for index, guide in enumerate(guides) for seed in (1, 2))
        )
        for text, pattern in zip(texts, [pattern for pattern in guides.values() for _ in range(2)], strict=True):
            assert text is None or re.fullmatch(pattern, text, re.DOTALL), (text, pattern)
        for text in texts[4:6]:
            assert text is None or set(json.loads(text)) == {"name", "size"}

    run(story)


def test_images_are_refused_by_name_or_change_the_answer(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        plain = await tokens(executor, request_for("plain", range(20)))
        rows = np.random.default_rng(1).normal(0, 3, (8, executor.info.hidden_size or 4)).astype(np.float32)
        request = replace(request_for("mine", range(20)), prompt_embeddings=(PromptEmbeddings(10, rows, b"an image"),))
        if not executor.info.hidden_size:
            with pytest.raises(UnsupportedFeatureError) as caught:
                executor.submit(request)
            assert caught.value.param == "prompt_embeddings"
        else:
            assert await tokens(executor, request) != plain

    run(story)


def test_an_adapter_that_is_not_there_is_refused_by_name(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            executor.submit(replace(request_for("a", range(8)), adapter="sql"))
        assert caught.value.param == "adapter"

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


def test_cancelled_sequences_make_room_at_once(run: Callable[..., None]) -> None:
    async def story(executor: Executor) -> None:
        room = executor.info.max_batch_size + executor.info.max_waiting
        for turn in range(3):
            names = [f"{turn}-{index}" for index in range(room)]
            streams = [executor.submit(request_for(name, range(8), max_tokens=400)) for name in names]
            await anext(streams[0])
            for name in names:
                executor.cancel(name)

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
        # so many that the last one is far from its end, however slowly this coroutine runs
        streams = [executor.submit(request_for(str(index), range(8), max_tokens=400)) for index in range(40)]
        await anext(streams[0])
        await executor.shutdown()
        await executor.shutdown()
        assert not executor.is_alive
        with pytest.raises(EngineDeadError):
            await collect(streams[-1])
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
