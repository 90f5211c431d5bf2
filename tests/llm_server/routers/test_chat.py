import asyncio
import json
import threading
from dataclasses import dataclass, replace
from datetime import datetime
from operator import methodcaller
from typing import Any, ClassVar

import httpx
import openai
import pytest

import stylers
from engines.errors import EngineDeadError, GuideError, OverloadedError, StepFailedError
from llm_server.errors import INTERNAL_MESSAGE
from llm_server.services.chat import INLINE_BYTES
from stylers import Chat, Prompt
from stylers.generic import GenericStyler
from tests.doubles import CHAT_TEMPLATE, INFO, ScriptedExecutor, says
from tests.llm_server.serving import MARKUP, MODEL, ask, chat_body, client_for, events_of, post_chat, served, text_of

PARROT = "Hi 🦜, <|im_end|"  # an end marker that breaks off stays text


def test_a_stream_opens_with_the_role_and_ends_with_its_finish_and_done() -> None:
    events = events_of(post_chat(ScriptedExecutor(says(PARROT)), stream=True))
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == PARROT
    assert events[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in events}) == 1
    assert not any("usage" in event for event in events)


def test_a_whole_answer_says_what_the_stream_says() -> None:
    completion = post_chat(ScriptedExecutor(says(PARROT))).json()
    message = {"role": "assistant", "content": PARROT, "refusal": None}
    assert completion["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert completion["object"] == "chat.completion"
    assert completion["model"] == MODEL


def test_usage_counts_the_prompt_once_and_the_end_tokens_of_all_choices() -> None:
    usage = post_chat(ScriptedExecutor(says("four")), n=3).json()["usage"]
    assert usage["completion_tokens"] == 3 * (len("four") + 1)
    assert usage["prompt_tokens"] == MARKUP + len("hi")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}


def test_a_stream_tells_its_usage_last_if_asked() -> None:
    *others, last = events_of(post_chat(stream=True, stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len("Hello!") + 1
    assert all(event["usage"] is None for event in others)


def test_choices_have_seeds_of_their_own_and_share_a_stream() -> None:
    executor = ScriptedExecutor(lambda request: [*f"I am {request.sampling.seed}".encode(), 258])
    events = events_of(post_chat(executor, stream=True, n=2, seed=2**64 - 1))
    assert [text_of(events, index) for index in (0, 1)] == [f"I am {2**64 - 1}", "I am 0"]
    assert [request.seq_id.rsplit("-", 1)[1] for request in executor.requests] == ["0", "1"]
    indexes = [event["choices"][0]["index"] for event in events]
    assert indexes != sorted(indexes)
    assert executor.live == set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_cuts_the_text_and_ends_the_sequence(stream: bool) -> None:
    executor = ScriptedExecutor(says("one two three four"))
    response = post_chat(executor, stream=stream, stop=["three", "four"])
    text, finish = _answer(response, stream)
    assert (text, finish) == ("one two ", "stop")
    assert len(executor.cancelled) == 1


def test_a_stop_string_can_stay_in_the_answer() -> None:
    body = post_chat(ScriptedExecutor(says("one two")), stop="e", include_stop_str_in_output=True).json()
    assert body["choices"][0]["message"]["content"] == "one"
    assert body["usage"]["completion_tokens"] == 3


def test_stop_strings_count_once_min_tokens_are_generated() -> None:
    executor = ScriptedExecutor(says("one two one two"))
    assert _answer(post_chat(executor, stop="two", min_tokens=8), False) == ("one two one ", "stop")


def test_what_only_began_like_a_stop_string_comes_with_the_end() -> None:
    events = events_of(post_chat(ScriptedExecutor(says("see you so")), stream=True, stop="soon"))
    assert text_of(events) == "see you so"


@pytest.mark.parametrize("stream", [False, True])
def test_the_limit_ends_an_answer_with_length(stream: bool) -> None:
    response = post_chat(ScriptedExecutor(says("🦜🦜")), stream=stream, max_completion_tokens=5, max_tokens=1)
    assert _answer(response, stream) == ("🦜\ufffd", "length")


def test_without_a_limit_the_rest_of_the_context_is_the_limit() -> None:
    executor = ScriptedExecutor()
    post_chat(executor)
    [request] = executor.requests
    assert len(request.prompt_token_ids) + request.max_tokens == executor.info.max_sequence_length


def test_ignored_end_tokens_leave_no_text_unless_special_tokens_are_shown() -> None:
    executor = ScriptedExecutor(lambda request: [72, 258, 73, 74])
    options = {"ignore_eos": True, "max_tokens": 4}
    assert _answer(post_chat(executor, **options), False) == ("HIJ", "length")
    assert _answer(post_chat(executor, skip_special_tokens=False, **options), False) == ("H<|im_end|>IJ", "length")


@pytest.mark.parametrize("stream", [False, True])
def test_a_guide_that_is_complete_ends_the_answer_though_end_tokens_are_ignored(stream: bool) -> None:
    executor = ScriptedExecutor(says("yes"))
    response = post_chat(executor, stream=stream, ignore_eos=True, guided_choice=["yes"], max_tokens=9)
    assert _answer(response, stream) == ("yes", "stop")


def test_more_choices_than_the_engine_ever_holds_are_refused_by_name() -> None:
    executor = ScriptedExecutor(info=replace(INFO, max_batch_size=2, max_waiting=1))
    refused = post_chat(executor, n=4)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
    assert executor.requests == []
    assert len(post_chat(executor, n=3).json()["choices"]) == 3


def test_sampling_fields_reach_the_executor_and_the_models_defaults_fill_the_gaps() -> None:
    executor = ScriptedExecutor()
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": -1,
        "logit_bias": {"7": -3, "8": 0},
        "seed": -1,
        "bad_words": ["no"],
    }
    ask(executor, lambda http: http.post("/v1/chat/completions", json=chat_body(**fields)), defaults={"top_p": 0.8})
    sampling = executor.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.8, 0, 2**64 - 1)
    assert sampling.logit_bias == {7: -3.0}
    assert sampling.bad_token_sequences == ((110, 111), (32, 110, 111))


def test_no_mass_means_greedy() -> None:
    executor = ScriptedExecutor()
    post_chat(executor, top_p=0, temperature=1.5)
    assert (executor.requests[0].sampling.temperature, executor.requests[0].sampling.top_p) == (0.0, 1.0)


def test_logprobs_stand_beside_the_text_they_belong_to() -> None:
    executor = ScriptedExecutor(says("a🦜b"))
    whole = post_chat(executor, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in whole] == [[byte] for byte in "a🦜b".encode()]
    assert whole[0]["token"] == "a"
    assert [each["token"] for each in whole[0]["top_logprobs"]] == ["a", "b"]
    events = events_of(post_chat(executor, logprobs=True, top_logprobs=2, stream=True))
    shown = [event["choices"][0]["logprobs"] for event in events if event["choices"]]
    assert [entry for part in shown if part for entry in part["content"]] == whole


def test_logprobs_end_where_a_stop_string_begins() -> None:
    choice = post_chat(ScriptedExecutor(says("abcd")), logprobs=True, stop="bc").json()["choices"][0]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a"]


def test_a_constraint_is_compiled_before_anything_is_queued() -> None:
    executor = ScriptedExecutor()
    schema = {"type": "object"}
    post_chat(executor, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    [guide] = executor.guides
    assert executor.requests[0].guide == guide
    assert (guide.kind, json.loads(guide.source)) == ("json_schema", schema)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (OverloadedError("full", retry_after_s=7), 429, "rate_limit_error", "overloaded"),
        (EngineDeadError("gone"), 503, "server_error", "engine_dead"),
        (StepFailedError("oops"), 500, "server_error", "step_failed"),
    ],
)
def test_a_refused_stream_is_an_http_error(error: Any, status: int, kind: str, code: str) -> None:
    response = post_chat(ScriptedExecutor(refusal=error), stream=True)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"] == {"message": error.message, "type": kind, "param": None, "code": code}
    assert response.headers.get("retry-after") == ("7" if status == 429 else None)


def test_an_error_after_the_first_token_is_an_event_before_done() -> None:
    *events, last = events_of(post_chat(ScriptedExecutor(failure=StepFailedError("step 7 failed")), stream=True))
    assert last == {"error": {"message": "step 7 failed", "type": "server_error", "param": None, "code": "step_failed"}}
    assert text_of(events) == "H"


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_of_ours_is_a_500_that_tells_nothing(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: object) -> list[int]:
        raise ZeroDivisionError("secret")

    response = post_chat(ScriptedExecutor(broken), stream=stream)
    assert response.status_code == 500
    assert response.json()["error"]["message"] == INTERNAL_MESSAGE
    assert "secret" in caplog.text


def test_one_choice_that_is_refused_takes_the_others_with_it() -> None:
    executor = ScriptedExecutor(pause_after=0)
    submit = executor.submit

    def submit_two(request: Any) -> Any:
        executor.refusal = OverloadedError("full") if len(executor.requests) == 2 else None
        return submit(request)

    executor.submit = submit_two  # type: ignore[method-assign]
    assert post_chat(executor, n=3).status_code == 429
    assert executor.live == set()


def test_the_clients_request_id_is_taken_over_if_it_is_sane() -> None:
    async def talk(http: httpx.AsyncClient) -> list[httpx.Response]:
        ids = ("trace-1.a:b", "bad id\t<>")
        return [await http.post("/v1/chat/completions", json=chat_body(), headers={"x-request-id": i}) for i in ids]

    sane, insane = ask(ScriptedExecutor(), talk)
    assert sane.headers["x-request-id"] == "trace-1.a:b"
    assert len(insane.headers["x-request-id"]) == 32


def test_the_same_request_id_twice_at_once_is_two_requests() -> None:
    async def talk(http: httpx.AsyncClient) -> list[int]:
        headers = {"x-request-id": "same"}
        posts = (http.post("/v1/chat/completions", json=chat_body(), headers=headers) for _ in range(2))
        return [response.status_code for response in await asyncio.gather(*posts)]

    executor = ScriptedExecutor()
    assert ask(executor, talk) == [200, 200]
    assert len({request.seq_id for request in executor.requests}) == 2


def test_the_openai_client_reads_both_forms() -> None:
    async def talk() -> tuple[str | None, str]:
        async with client_for(served(ScriptedExecutor())) as http:
            client_http: Any = http  # newer openai packages type it as a copy of httpx
            client = openai.AsyncOpenAI(api_key="-", base_url="http://test/v1", http_client=client_http)
            messages: Any = [{"role": "user", "content": "hi"}]
            whole = await client.chat.completions.create(model=MODEL, messages=messages)
            stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return whole.choices[0].message.content, text

    assert asyncio.run(talk()) == ("Hello!", "Hello!")


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
THINK, THOUGHT, TURN, END = 259, 260, 257, 258  # <think>, </think>, <|im_start|>, <|im_end|>


def as_qwen(script: list[int], **fields: Any) -> httpx.Response:
    executor = ScriptedExecutor(lambda _: script, info=replace(INFO, max_sequence_length=2048))
    post = chat_body(**fields)
    return ask(executor, lambda http: http.post("/v1/chat/completions", json=post), styler=stylers.get("qwen3"))


def test_reasoning_stands_apart_and_marks_that_nobody_reads_are_dropped() -> None:
    script = [THINK, *b"Rain?", THOUGHT, *b"Hi", TURN, *b"!", END]
    message = as_qwen(script).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Rain?", "Hi!")
    events = events_of(as_qwen(script, stream=True))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Rain?"
    assert text_of(events) == "Hi!"
    assert "<|im_start|>" in as_qwen(script, skip_special_tokens=False).json()["choices"][0]["message"]["content"]


def test_calls_come_in_openais_form() -> None:
    choice = as_qwen([*CALL.encode(), END], tools=[WEATHER]).json()["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


def test_streamed_calls_are_named_first_and_add_up() -> None:
    events = events_of(as_qwen([*CALL.encode(), END], tools=[WEATHER], stream=True))
    pieces = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])]
    assert pieces[0]["function"]["name"] == "weather"
    assert pieces[0]["id"]
    assert not any("id" in piece or "name" in piece["function"] for piece in pieces[1:])
    assert json.loads("".join(piece["function"].get("arguments", "") for piece in pieces)) == {"city": "Oslo"}
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def _answer(response: httpx.Response, stream: bool) -> tuple[str, str]:
    if stream:
        events = events_of(response)
        return text_of(events), events[-1]["choices"][0]["finish_reason"]
    choice = response.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


@dataclass(frozen=True)
class Witness(GenericStyler):
    """Notes in which threads prompts are built."""

    threads: ClassVar[list[threading.Thread]] = []

    def build_prompt(self, chat: Chat, *, now: datetime | None = None, tools_block: bool = True) -> Prompt:
        self.threads.append(threading.current_thread())
        return super().build_prompt(chat, now=now, tools_block=tools_block)


def test_only_a_large_body_is_rendered_off_the_loop() -> None:
    styler = Witness("witness").for_model(chat_template=CHAT_TEMPLATE)
    executor = ScriptedExecutor(info=replace(INFO, max_sequence_length=10**6, num_blocks=10**6))
    for text in ("hi", "x" * INLINE_BYTES):
        post = methodcaller("post", "/v1/chat/completions", json=chat_body(text))
        assert ask(executor, post, styler=styler).status_code == 200
    small, large = Witness.threads
    assert small is threading.main_thread() is not large


def test_a_guide_that_cannot_be_followed_is_told_of_by_the_name_of_its_field() -> None:
    response = post_chat(ScriptedExecutor(refusal=GuideError("stuck", "guide")), guided_regex="a")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "guided_regex"
