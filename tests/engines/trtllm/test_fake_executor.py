"""That the fake C++ executor is as strict as the real one; tests/fakes/README.md says where each rule comes from."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engines.trtllm.location import ModelLocation
from tests.trtllm_fixtures import engine_config, write_prebuilt

PROMPT = list(range(5, 45))
Make = Callable[..., Any]


@pytest.fixture
def api(fake_trtllm: ModuleType) -> ModuleType:
    return import_module("tensorrt_llm.bindings.executor")


@pytest.fixture
def make(api: ModuleType, trtllm_prebuilt: Path) -> Iterator[Make]:
    """Make an executor, of the tiny engine unless told otherwise; it is shut down in the end."""
    made = []

    def executor(path: Path | None = None, **options: Any) -> Any:
        folder = path or ModelLocation.read(trtllm_prebuilt).path
        options = {"max_batch_size": 2, "enable_chunked_context": True, **options}
        made.append(api.Executor(str(folder), api.ModelType.DECODER_ONLY, api.ExecutorConfig(**options)))
        return made[-1]

    yield executor
    for each in made:
        each.shutdown()


def request(api: ModuleType, prompt: list[int] = PROMPT, max_tokens: int = 8, **options: Any) -> Any:
    sampling = api.SamplingConfig(top_k=1)
    return api.Request(prompt, max_tokens, **{"streaming": True, "sampling_config": sampling, **options})


def responses(executor: Any, request_id: int, timeout_s: float = 5.0) -> list[Any]:
    """All responses of a request, to its last one."""
    found: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found += [
            each for each in executor.await_responses(timedelta(milliseconds=50)) if each.request_id == request_id
        ]
        if found and (found[-1].has_error() or found[-1].result.is_final):
            return found
    raise AssertionError("no final response")


def ask(executor: Any, asked: Any) -> list[Any]:
    return responses(executor, executor.enqueue_request(asked))


def tokens_of(found: list[Any]) -> list[int]:
    return [token_id for each in found for token_id in each.result.output_token_ids[0]]


def error_of(executor: Any, asked: Any) -> str:
    (response,) = ask(executor, asked)
    assert response.has_error()
    with pytest.raises(RuntimeError):
        _ = response.result
    return str(response.error_msg)


def test_waiting_blocks_for_a_timedelta_and_takes_no_int(make: Make) -> None:
    executor = make()
    started = time.monotonic()
    assert executor.await_responses(timedelta(milliseconds=30)) == []
    assert time.monotonic() - started >= 0.03
    with pytest.raises(TypeError):
        executor.await_responses(1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda api: api.Request([], 8),
        lambda api: api.Request([1], 0),
        lambda api: api.Request([1], 8, unheard_of=1),
        lambda api: api.Request([1], 8, True),
        lambda api: api.Request([1.5], 8),
        lambda api: api.Request([1], 8, stop_words=[1]),
        lambda api: api.Request([1], 8, embedding_bias=np.zeros(4)),
        lambda api: api.Request([1], 8, cache_salt_id=-1),
        lambda api: api.Request([1], 8, allotted_time_ms=5),
        lambda api: api.PromptTuningConfig(np.zeros((1, 4))),
        lambda api: api.LookaheadDecodingConfig(0, 3, 4),
        lambda api: api.ExecutorConfig(unheard_of=1),
        lambda api: api.KvCacheConfig(free_gpu_memory_fraction=1.5),
    ],
)
def test_wrong_arguments_fail_when_an_object_is_made(api: ModuleType, wrong: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        wrong(api)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 0),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("temperature", -1.0),
        ("min_tokens", -1),
        ("repetition_penalty", 0.0),
        ("min_p", 1.5),
        ("top_p_decay", 0.0),
        ("no_repeat_ngram_size", -1),
        ("num_return_sequences", 0),
        ("seed", -1),
        ("prompt_ignore_length", -1),
    ],
)
def test_sampling_is_checked_when_made_and_when_assigned(api: ModuleType, name: str, value: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        api.SamplingConfig(**{name: value})
    with pytest.raises((RuntimeError, TypeError)):
        setattr(api.SamplingConfig(), name, value)


def test_a_request_is_read_back_under_other_names_or_not_at_all(api: ModuleType) -> None:
    made = api.Request([1, 2], 8, type=api.RequestType.REQUEST_TYPE_CONTEXT_ONLY, priority=0.9)
    assert made.request_type is api.RequestType.REQUEST_TYPE_CONTEXT_ONLY
    assert not hasattr(made, "type")
    for name in ("priority", "num_return_sequences"):
        with pytest.raises(AttributeError):
            getattr(made, name)
    with pytest.raises(AttributeError):
        made.max_tokens = 9
    made.py_mark = 1  # attributes of one's own are fine


def test_the_prompt_is_echoed_unless_excluded_and_never_in_a_stream(api: ModuleType, make: Make) -> None:
    executor = make()
    streamed = tokens_of(ask(executor, request(api)))
    (whole,) = ask(executor, request(api, streaming=False))
    assert whole.result.output_token_ids[0] == PROMPT + streamed
    excluding = api.OutputConfig(exclude_input_from_output=True)
    (answer,) = ask(executor, request(api, streaming=False, output_config=excluding))
    assert answer.result.output_token_ids[0] == streamed


def test_the_token_of_end_id_is_not_in_the_output_and_those_of_stop_words_are(api: ModuleType, make: Make) -> None:
    executor = make()
    free = tokens_of(ask(executor, request(api)))
    ended = ask(executor, request(api, end_id=free[3]))
    assert tokens_of(ended) == free[: free.index(free[3])]
    assert ended[-1].result.finish_reasons == [api.FinishReason.END_ID]
    stopped = ask(executor, request(api, end_id=-1, stop_words=[[free[3]]]))
    assert tokens_of(stopped) == free[: free.index(free[3]) + 1]
    assert stopped[-1].result.finish_reasons == [api.FinishReason.STOP_WORDS]


def test_an_unseeded_draw_is_the_same_each_time(api: ModuleType, make: Make) -> None:
    executor = make()

    def draw(**options: Any) -> list[int]:
        sampling = api.SamplingConfig(temperature=2.0, top_k=0, top_p=1.0, **options)
        return tokens_of(ask(executor, request(api, sampling_config=sampling)))

    assert draw() == draw() == draw(seed=0)
    assert draw(seed=1) != draw()


def test_without_top_p_or_top_k_the_runtime_is_greedy(api: ModuleType, make: Make) -> None:
    executor = make()
    greedy = tokens_of(ask(executor, request(api)))
    sampling = api.SamplingConfig(temperature=2.0, seed=3)
    assert tokens_of(ask(executor, request(api, sampling_config=sampling))) == greedy


def test_bad_words_of_several_tokens_are_known(api: ModuleType, make: Make) -> None:
    executor = make()
    free = tokens_of(ask(executor, request(api)))
    assert tokens_of(ask(executor, request(api, bad_words=[free[:2]])))[:2] != free[:2]


def test_logits_come_only_where_engine_and_executor_were_made_for_it(api: ModuleType, make: Make) -> None:
    executor = make(gather_generation_logits=True)
    wanted = api.OutputConfig(return_context_logits=True, return_generation_logits=True)
    first = ask(executor, request(api, output_config=wanted))[0].result
    assert first.context_logits.shape[0] == len(PROMPT)
    assert first.generation_logits.shape[:2] == (1, 1)
    assert first.generation_logits.shape[2] > executor.model.vocab_size  # rows are padded
    cached = ask(executor, request(api, output_config=wanted))[0].result
    assert cached.context_logits.shape[0] == len(PROMPT) - 32  # what was reused is not covered
    generation = api.OutputConfig(return_generation_logits=True)
    assert "must be enabled in ExecutorConfig" in error_of(make(), request(api, output_config=generation))


def test_reused_blocks_are_told_only_with_performance_metrics(api: ModuleType, make: Make) -> None:
    executor = make()
    ask(executor, request(api))
    assert ask(executor, request(api))[0].result.request_perf_metrics is None
    told = ask(executor, request(api, output_config=api.OutputConfig(return_perf_metrics=True)))[0].result
    assert told.request_perf_metrics.kv_cache_metrics.num_reused_blocks == 1
    assert not hasattr(told, "cached_tokens")


def test_a_cancel_is_answered_a_step_later_and_again_does_nothing(
    api: ModuleType, make: Make, fake_trtllm: ModuleType
) -> None:
    executor = make()
    fake_trtllm.STAGE.step_s = 0.01
    running = [executor.enqueue_request(request(api, max_tokens=400)) for _ in range(2)]
    waiting = executor.enqueue_request(request(api))  # it is answered, too, once it is taken in
    for request_id in (*running, waiting):
        executor.cancel_request(request_id)
    finals: dict[int, str] = {}
    deadline = time.monotonic() + 5
    while len(finals) < 3 and time.monotonic() < deadline:
        for each in executor.await_responses(timedelta(milliseconds=20)):
            if each.result.is_final:
                finals[each.request_id] = each.result.finish_reasons[0].name
    assert finals == dict.fromkeys((*running, waiting), "CANCELLED")
    executor.cancel_request(running[0])
    executor.cancel_request(10**6)


def test_nothing_works_after_a_shutdown_which_is_idempotent(api: ModuleType, make: Make) -> None:
    executor = make()
    assert executor.can_enqueue_requests()
    executor.shutdown()
    executor.shutdown()
    assert not executor.can_enqueue_requests()
    for use in (
        lambda: executor.enqueue_request(request(api)),
        lambda: executor.await_responses(timedelta()),
        lambda: executor.cancel_request(1),
        executor.get_latest_iteration_stats,
    ):
        with pytest.raises(RuntimeError, match="Shutdown called"):
            use()


def test_a_shutdown_waits_for_the_end_of_what_runs(api: ModuleType, make: Make, fake_trtllm: ModuleType) -> None:
    executor = make()
    fake_trtllm.STAGE.step_s = 0.01
    executor.enqueue_request(request(api, max_tokens=15))
    while not executor.await_responses(timedelta(milliseconds=20)):
        pass
    started = time.monotonic()
    executor.shutdown()
    assert time.monotonic() - started > 0.05


def test_statistics_are_drained_objects_with_json(api: ModuleType, make: Make) -> None:
    executor = make(iter_stats_max_iterations=5)
    ask(executor, request(api))
    stats = executor.get_latest_iteration_stats()
    assert 0 < len(stats) <= 5
    assert '"maxNumBlocks"' in stats[0].to_json_str()
    assert executor.get_latest_iteration_stats() == []


def table(
    api: ModuleType, num_rows: int = 3, extra_ids: Any = None, on_gpu: bool = True, dtype: str = "float16"
) -> Any:
    import torch

    rows = torch.from_numpy(np.ones((num_rows, 64), np.float32)).to(dtype)
    return api.PromptTuningConfig(rows.cuda() if on_gpu else rows, extra_ids)


def test_a_prompt_table_needs_ids_that_tell_it_apart_where_blocks_are_reused(api: ModuleType, make: Make) -> None:
    executor = make()
    vocab_size = executor.model.vocab_size
    prompt = [vocab_size, vocab_size + 1, vocab_size + 2, 7]
    without, short = table(api), table(api, extra_ids=[1, 1, 1])
    assert "must be provided" in error_of(executor, request(api, prompt, prompt_tuning_config=without))
    assert "must be the same" in error_of(executor, request(api, prompt, prompt_tuning_config=short))
    whole = table(api, extra_ids=[1, 1, 1, 0])
    assert len(tokens_of(ask(executor, request(api, prompt, prompt_tuning_config=whole)))) == 8
    plain = make(kv_cache_config=api.KvCacheConfig(enable_block_reuse=False))
    assert len(tokens_of(ask(plain, request(api, prompt, prompt_tuning_config=without)))) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_rows": 2}, "Token ID out of range"),
        ({"num_rows": 65}, "larger than max prompt vocab size"),
        ({"on_gpu": False}, "not on the GPU"),
        ({"dtype": "float32"}, "expected rows of 64 float16"),
    ],
)
def test_a_prompt_table_that_does_not_fit_is_an_error(
    api: ModuleType, make: Make, options: dict[str, Any], message: str
) -> None:
    executor = make()
    prompt = [executor.model.vocab_size + 2, 7]
    tuning = table(api, extra_ids=[1, 0], **options)
    assert message in error_of(executor, request(api, prompt, prompt_tuning_config=tuning))


def test_equal_extra_ids_share_blocks_whatever_the_rows(api: ModuleType, make: Make) -> None:
    import torch

    executor = make()
    prompt = [executor.model.vocab_size + row for row in range(40)]
    answers = []
    for seed, extra_id in ((1, 5), (2, 5), (2, 6)):
        rows = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (40, 64)).astype(np.float32))
        tuning = api.PromptTuningConfig(rows.to("float16").cuda(), [extra_id] * 40)
        metrics = api.OutputConfig(return_perf_metrics=True)
        found = ask(executor, request(api, prompt, prompt_tuning_config=tuning, output_config=metrics))
        answers.append(found[0].result.request_perf_metrics.kv_cache_metrics.num_reused_blocks)
    assert answers == [0, 1, 0]


def test_logits_are_edited_on_their_stream_or_the_step_fails_for_all(api: ModuleType, make: Make) -> None:
    executor = make()

    def careless(request_id: int, logits: Any, token_ids: Any, stream_ptr: int, client_id: int | None) -> None:
        logits[..., 0] = 1.0

    others = executor.enqueue_request(request(api, max_tokens=100))
    assert "outside of the stream" in error_of(executor, request(api, logits_post_processor=careless))
    assert others is not None


def test_a_callable_for_the_logits_needs_to_be_asked_for_where_there_are_several_gpus(
    api: ModuleType, make: Make, tmp_path: Path
) -> None:
    folder = write_prebuilt(tmp_path, engine_config(tp_size=2))
    worker = str(Path(str(api.__file__)).parents[2] / "bin" / "executorWorker")
    spawned = api.ParallelConfig(
        communication_mode=api.CommunicationMode.ORCHESTRATOR,
        orchestrator_config=api.OrchestratorConfig(worker_executable_path=worker),
    )
    executor = make(folder, parallel_config=spawned)
    assert "replicate=false" in error_of(executor, request(api, logits_post_processor=lambda *_: None))


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"plugins": {"use_paged_context_fmha": False}}, {}, "reuse requires paged context FMHA"),
        ({"plugins": {"paged_kv_cache": False}}, {}, "paged KV cache"),
        ({"speculative_decoding_mode": 8, "max_draft_len": 15}, {}, "do not agree about lookahead"),
        ({"tp_size": 2}, {}, "needs 2 ranks, but MPI has 1"),
        ({"tp_size": 16}, {}, "needs 16 ranks"),
    ],
)
def test_an_engine_that_does_not_fit_is_an_error_of_the_constructor(
    api: ModuleType, make: Make, tmp_path: Path, config: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        make(write_prebuilt(tmp_path, engine_config(**config)), **options)


def test_an_engine_of_another_release_cannot_be_read(api: ModuleType, make: Make, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"built by 1\.1\.0"):
        make(write_prebuilt(tmp_path, {**engine_config(), "version": "1.1.0"}))


def test_a_prompt_that_is_too_long_is_an_error_and_too_many_tokens_are_cut(api: ModuleType, make: Make) -> None:
    executor = make()
    assert "exceeds maximum input length (511)" in error_of(executor, request(api, list(range(200)) * 3))
    assert len(tokens_of(ask(executor, request(api, [7] * 500, max_tokens=400)))) == 12
    unchunked = make(enable_chunked_context=False)
    assert "exceeds maximum input length (64)" in error_of(unchunked, request(api, list(range(65))))
