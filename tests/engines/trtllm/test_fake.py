"""That the fake TensorRT-LLM is as strict as the real one; tests/fakes/README.md says where each rule comes from."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.lora_adapters import write_adapter

Use = Callable[[Any], Awaitable[None]]
PROMPT = {"prompt_token_ids": list(range(5, 25))}


@pytest.fixture
def api(fake_trtllm: ModuleType) -> ModuleType:
    return import_module("tensorrt_llm")


@pytest.fixture
def use(api: ModuleType, tiny_checkpoint: Path) -> Callable[..., None]:
    def run(story: Use, **arguments: Any) -> None:
        llm = api.LLM(str(tiny_checkpoint), **{"max_batch_size": 2, **arguments})
        try:
            asyncio.run(within(story, llm))
        finally:
            llm.shutdown()

    async def within(story: Use, llm: Any) -> None:
        async with asyncio.timeout(20):
            await story(llm)

    return run


def params(**fields: Any) -> Any:
    from tensorrt_llm import SamplingParams

    return SamplingParams(**{"end_id": 1, "ignore_eos": True, "max_tokens": 12, "detokenize": False, **fields})


async def answer(llm: Any, **fields: Any) -> list[int]:
    result = await llm.generate_async(inputs=PROMPT, sampling_params=params(**fields))
    return list(result.outputs[0].token_ids)


def errors() -> Any:
    from tensorrt_llm.executor.utils import RequestError

    return RequestError


@pytest.mark.parametrize(
    "arguments",
    [
        {"unheard_of": 1},
        {"calib_config": None},
        {"kv_cache_config": {"free_gpu_memory_fraction": 1.5}},
        {"sampler_type": "TRTLLMSampler", "speculative_config": "mtp"},
    ],
)
def test_arguments_that_the_pytorch_class_refuses(
    api: ModuleType, tiny_checkpoint: Path, arguments: dict[str, Any]
) -> None:
    if arguments.get("speculative_config") == "mtp":
        arguments = {**arguments, "speculative_config": api.llmapi.MTPDecodingConfig()}
    with pytest.raises(ValueError):  # noqa: PT011  # no message is promised
        api.LLM(str(tiny_checkpoint), **arguments)


def test_sampling_params_are_checked_when_they_are_made(api: ModuleType) -> None:
    assert api.SamplingParams().max_tokens == 32
    with pytest.raises(TypeError):
        api.SamplingParams(unheard_of=1)
    wrong: tuple[dict[str, Any], ...] = (
        {"top_p": 1.5},
        {"top_k": -1},
        {"temperature": -1.0},
        {"best_of": 2},
        {"n": 2, "best_of": 1},
    )
    for fields in wrong:
        with pytest.raises(ValueError):  # noqa: PT011
            api.SamplingParams(**fields)


def test_outside_of_a_loop_the_result_cannot_be_awaited(api: ModuleType, tiny_checkpoint: Path) -> None:
    llm = api.LLM(str(tiny_checkpoint))
    result = llm.generate_async(inputs=PROMPT, sampling_params=params())

    async def wait() -> None:
        await result

    with pytest.raises(AssertionError):
        asyncio.run(wait())
    llm.shutdown()


def test_wrong_inputs_raise_errors_of_no_common_type(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        for inputs, kind in (({}, AssertionError), (["a"], AssertionError), ([], IndexError), ((1, 2), TypeError)):
            with pytest.raises(kind):
                llm.generate_async(inputs=inputs, sampling_params=params())
        with pytest.raises(ValueError, match="max_num_tokens"):
            llm.generate_async(inputs=list(range(40)), sampling_params=params())

    use(story, max_num_tokens=32)


def test_submitting_changes_the_params_and_some_values_fail_at_the_first_await_only(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        free = params(end_id=None)
        llm.generate_async(inputs=PROMPT, sampling_params=free)
        assert free.end_id == llm._end_id
        refused: tuple[dict[str, Any], ...] = ({"top_p": 0.0}, {"max_tokens": 0}, {"stop": []}, {"bad": ["x"]})
        for fields in refused:
            result = llm.generate_async(inputs=PROMPT, sampling_params=params(**fields))
            with pytest.raises(errors()):
                await result
            assert not result.finished
            with pytest.raises(TimeoutError):  # nothing more will come
                await asyncio.wait_for(result.aresult(), 0.05)
        with pytest.raises(errors(), match="out of range"):
            await llm.generate_async(inputs=[10**5], sampling_params=params())
        with pytest.raises(errors(), match="max_seq_len"):
            await llm.generate_async(inputs=list(range(200)) * 3, sampling_params=params())

    use(story)


def test_one_object_is_changed_in_place_and_its_diffs_are_relative(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        result = llm.generate_async(inputs=PROMPT, sampling_params=params(), streaming=True)
        seen, objects = [], set()
        async for item in result:
            objects.add(id(item))
            seen += item.outputs[0].token_ids_diff
        assert len(objects) == 1
        assert seen == result.outputs[0].token_ids
        assert (result.outputs[0].finish_reason, len(seen)) == ("length", 12)

    use(story)


def test_a_response_may_bring_several_tokens(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        result = llm.generate_async(inputs=PROMPT, sampling_params=params(), streaming=True)
        assert [len(item.outputs[0].token_ids_diff) async for item in result] == [5, 5, 2]

    use(story, stream_interval=5)


@pytest.mark.parametrize(("sampler", "is_there"), [("TorchSampler", True), ("TRTLLMSampler", False)])
def test_the_end_token_is_in_the_output_or_not_by_sampler(
    use: Callable[..., None], sampler: str, is_there: bool
) -> None:
    async def story(llm: Any) -> None:
        free = await answer(llm, top_k=1)
        result = await llm.generate_async(
            inputs=PROMPT, sampling_params=params(top_k=1, end_id=free[2], ignore_eos=False)
        )
        first = free.index(free[2])
        assert result.outputs[0].token_ids == free[: first + is_there]
        assert (result.outputs[0].finish_reason, result.outputs[0].stop_reason) == ("stop", None)

    use(story, sampler_type=sampler)


def test_a_stop_token_is_cut_unless_asked_for_and_is_a_length_on_the_last_place(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        free = await answer(llm, top_k=1)
        stop, first = free[2], free.index(free[2])
        for include in (False, True):
            result = await llm.generate_async(
                inputs=PROMPT,
                sampling_params=params(top_k=1, stop_token_ids=[stop], include_stop_str_in_output=include, logprobs=1),
            )
            output = result.outputs[0]
            assert (output.token_ids, output.finish_reason, output.stop_reason) == (
                free[: first + include],
                "stop",
                stop,
            )
            assert len(output.logprobs) == first + 1
        result = await llm.generate_async(
            inputs=PROMPT, sampling_params=params(top_k=1, stop_token_ids=[stop], max_tokens=first + 1)
        )
        assert result.outputs[0].finish_reason == "length"

    use(story)


def test_a_stop_string_cuts_the_text_and_leaves_the_tokens(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        whole = await llm.generate_async(inputs=PROMPT, sampling_params=params(end_id=None, detokenize=True))
        text = whole.outputs[0].text
        stopped = await llm.generate_async(
            inputs=PROMPT, sampling_params=params(end_id=None, detokenize=True, stop=text[3:5])
        )
        assert stopped.outputs[0].text == text[: text.index(text[3:5])]
        assert len(stopped.outputs[0].token_ids) > 0

    use(story)


def test_leaving_a_stream_does_not_stop_it_and_an_abort_takes_a_step(
    use: Callable[..., None], fake_trtllm: ModuleType
) -> None:
    async def story(llm: Any) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        result = llm.generate_async(inputs=PROMPT, sampling_params=params(max_tokens=400), streaming=True)
        async for _ in result:
            break
        await asyncio.sleep(0.05)
        assert len(llm._executor.active) == 1
        result.abort()
        assert result.aborted()
        assert not result.finished
        async for _ in result:
            pass
        assert result.outputs[0].finish_reason == "cancelled"

    use(story)


def test_an_aborted_request_that_waits_never_hears_of_it(use: Callable[..., None], fake_trtllm: ModuleType) -> None:
    async def story(llm: Any) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        running = [llm.generate_async(inputs=PROMPT, sampling_params=params(max_tokens=100)) for _ in range(2)]
        waiting = llm.generate_async(inputs=PROMPT, sampling_params=params())
        await asyncio.sleep(0.05)
        waiting.abort()
        await asyncio.gather(*(each.aresult() for each in running))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting.aresult(), 0.1)

    use(story)


def test_a_fatal_error_ends_the_llm(use: Callable[..., None], fake_trtllm: ModuleType, tmp_path: Path) -> None:
    async def story(llm: Any) -> None:
        fake_trtllm.STAGE.step_s = 0.01
        result = llm.generate_async(inputs=PROMPT, sampling_params=params(max_tokens=400))
        await asyncio.sleep(0.03)
        wrong = lora("broken", 1, tmp_path)  # a LoRA adapter that cannot be loaded takes this way
        llm.generate_async(inputs=PROMPT, sampling_params=params(), lora_request=wrong)
        with pytest.raises((FileNotFoundError, TimeoutError)):
            await asyncio.wait_for(result.aresult(), 1)
        with pytest.raises(RuntimeError, match="shutting down"):
            llm.generate_async(inputs=PROMPT, sampling_params=params())

    use(story, **with_lora())


def with_lora(*, cuda_graphs: bool = False, **fields: Any) -> dict[str, Any]:
    from tensorrt_llm.lora_helper import LoraConfig

    config = LoraConfig(**{"lora_target_modules": ["attn_q", "attn_v"], "max_lora_rank": 4, **fields})
    return {"lora_config": config} | ({} if cuda_graphs else {"cuda_graph_config": None})


def lora(name: str, number: int, folder: Path) -> Any:
    from tensorrt_llm.executor.request import LoRARequest

    return LoRARequest(name, number, str(folder))


async def adapted(llm: Any, request: Any) -> list[int]:
    result = await llm.generate_async(inputs=PROMPT, sampling_params=params(top_k=1), lora_request=request)
    return list(result.outputs[0].token_ids)


def test_an_adapter_of_no_folder_cannot_be_named(api: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        lora("gone", 1, tmp_path / "gone")


def test_an_adapter_changes_the_answer_but_for_cuda_graphs_or_without_a_configuration(
    use: Callable[..., None], tmp_path: Path
) -> None:
    request = lora("sql", 1, write_adapter(tmp_path / "sql"))

    async def applied(llm: Any) -> None:
        assert await adapted(llm, request) != await adapted(llm, None)

    async def left_out(llm: Any) -> None:
        assert await adapted(llm, request) == await adapted(llm, None)

    use(applied, **with_lora())
    use(left_out, **with_lora(lora_target_modules=["attn_k"]))
    use(left_out, **with_lora(cuda_graphs=True))
    use(left_out)


def test_lora_needs_its_modules_named_and_ranks_within_its_own(use: Callable[..., None], tmp_path: Path) -> None:
    async def story(llm: Any) -> None:
        with pytest.raises(RuntimeError, match="adapter size 8 is larger than the maximum 4"):
            await adapted(llm, lora("wide", 1, write_adapter(tmp_path / "wide", rank=8)))

    use(story, **with_lora())
    with pytest.raises(AssertionError, match="at least one lora target module"):
        use(story, **with_lora(lora_target_modules=[]))


def test_statistics_flow_after_the_first_request_once_each_and_to_one_kind_of_reader(
    use: Callable[..., None],
) -> None:
    async def story(llm: Any) -> None:
        assert [item async for item in llm.get_stats_async(timeout=0.05)] == []
        await answer(llm)
        items = [item["iter"] async for item in llm.get_stats_async(timeout=0.1)]
        assert items == sorted(set(items))
        assert len(items) >= 12
        assert [item async for item in llm.get_stats_async(timeout=0.05)] == []
        await answer(llm)
        assert len(llm.get_stats(timeout=0.1)) >= 12
        await answer(llm)
        with pytest.raises(Exception, match="read synchronously"):
            [item async for item in llm.get_stats_async(timeout=0.05)]

    use(story, enable_iter_perf_stats=True)


def test_a_silence_ends_the_statistics_until_the_next_request(
    use: Callable[..., None], fake_trtllm: ModuleType
) -> None:
    async def story(llm: Any) -> None:
        fake_trtllm.STAGE.hold_stats = True
        await answer(llm)
        assert [item async for item in llm.get_stats_async(timeout=0.01)] == []
        fake_trtllm.STAGE.hold_stats = False
        assert [item async for item in llm.get_stats_async(timeout=5)] == []
        await answer(llm)
        assert len([item async for item in llm.get_stats_async(timeout=0.3)]) >= 24

    use(story, enable_iter_perf_stats=True)


class Seen:
    """A logits processor that notes how many tokens it is shown."""

    lengths: ClassVar[list[int]] = []

    def __call__(self, req_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: Any, client_id: Any) -> None:
        self.lengths.append(len(token_ids[0]))


@pytest.mark.parametrize(
    ("arguments", "lengths"),
    [
        ({}, [0, 0, 1, 2]),
        ({"disable_overlap_scheduler": True}, [0, 1, 2, 3]),
        ({"pipeline_parallel_size": 2}, [0, 1, 2, 3]),
    ],
)
def test_a_logits_processor_does_not_see_the_newest_token_while_steps_overlap(
    use: Callable[..., None], arguments: dict[str, Any], lengths: list[int]
) -> None:
    async def story(llm: Any) -> None:
        Seen.lengths.clear()
        await answer(llm, logits_processor=Seen(), max_tokens=4)
        assert [length - Seen.lengths[0] for length in Seen.lengths] == lengths

    use(story, **arguments)


def test_of_several_sequences_only_the_last_to_end_has_a_reason(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        result = await llm.generate_async(
            inputs=PROMPT, sampling_params=params(n=2, temperature=1.0, top_k=0, top_p=1.0)
        )
        assert [output.finish_reason for output in result.outputs] == [None, "length"]

    use(story)


IGNORED = [
    {"repetition_penalty": 5.0},
    {"presence_penalty": 2.0},
    {"frequency_penalty": 2.0},
    {"bad_token_ids": [0]},
    {"min_p": 1.0},
    {"seed": 3},
]


@pytest.mark.parametrize("fields", IGNORED, ids=lambda fields: str(next(iter(fields))))
def test_the_torch_sampler_ignores_what_the_cpp_sampler_honours(use: Callable[..., None], fields: Any) -> None:
    draws = {} if "seed" not in fields and "min_p" not in fields else {"temperature": 1.5, "top_k": 0, "top_p": 1.0}
    answers: dict[str, tuple[list[int], list[int]]] = {}

    async def story(llm: Any) -> None:
        plain = await answer(llm, **draws)
        changed = {"bad_token_ids": plain[:1]} if "bad_token_ids" in fields else fields
        if "seed" in fields:
            llm._executor._sampler.__init__()  # the one generator of TorchSampler starts anew
        answers[llm.args.sampler_type] = (plain, await answer(llm, **draws, **changed))

    for sampler in ("TorchSampler", "TRTLLMSampler"):
        use(story, sampler_type=sampler)
    if "min_p" not in fields:  # with one generator for all, two draws differ anyway
        assert answers["TorchSampler"][0] == answers["TorchSampler"][1]
    assert answers["TRTLLMSampler"][0] != answers["TRTLLMSampler"][1]


def test_the_cpp_sampler_reports_one_logprob_of_rank_one(use: Callable[..., None]) -> None:
    async def story(llm: Any) -> None:
        result = await llm.generate_async(inputs=PROMPT, sampling_params=params(logprobs=5))
        entries = result.outputs[0].logprobs
        assert all([entry.rank for entry in logprobs.values()] == [1] for logprobs in entries)

    use(story, sampler_type="TRTLLMSampler")


def test_shutdown_is_idempotent(api: ModuleType, tiny_checkpoint: Path) -> None:
    llm = api.LLM(str(tiny_checkpoint))
    llm.shutdown()
    llm.shutdown()


def test_a_second_loop_is_not_woken_by_a_batch_that_belongs_to_the_first(fake_trtllm: ModuleType) -> None:
    from tensorrt_llm.result import AsyncQueue, dispatch

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def queue() -> Any:
        return AsyncQueue()

    one, two = first.run_until_complete(queue()), second.run_until_complete(queue())
    dispatch([(one, "a"), (two, "b")])
    first.run_until_complete(asyncio.sleep(0))
    assert one.event.is_set()
    assert two.loop is second
    first.close()
    second.close()
