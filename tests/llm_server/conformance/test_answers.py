"""Whole and streamed answers, what they cost, and where they end."""

from typing import Any

import pytest

from tests.llm_server.conformance.client import MODEL, Client, Json
from tests.llm_server.serving import text_of

END = "<|im_end|>"
TALE = "one two three four"


def choice_of(answer: Json, index: int = 0) -> Json:
    choice = answer["choices"][index]
    assert isinstance(choice, dict)
    return choice


def end_of(events: list[Json]) -> str | None:
    """The one finish reason of a stream."""
    [reason] = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    return str(reason)


def test_a_stream_says_what_a_whole_answer_says(server: Client) -> None:
    answer = server.ask()
    events = server.stream()
    assert text_of(events) == choice_of(answer)["message"]["content"]
    assert end_of(events) == choice_of(answer)["finish_reason"]


def test_an_answer_has_openais_form(server: Client) -> None:
    answer = server.ask(max_tokens=5)
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    assert choice_of(answer)["message"].keys() == {"role", "content", "refusal"}
    assert choice_of(answer)["message"]["role"] == "assistant"
    assert (choice_of(answer)["index"], choice_of(answer)["logprobs"]) == (0, None)


def test_a_stream_opens_with_the_role_and_ends_with_its_reason(server: Client) -> None:
    events = server.stream(ignore_eos=True)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    assert choice_of(events[0])["delta"] == {"role": "assistant", "content": ""}
    assert choice_of(events[-1]) == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert not any("role" in choice_of(event)["delta"] for event in events[1:])
    assert not any("usage" in event for event in events)


def test_usage_counts_the_prompt_once_and_every_sampled_token(server: Client) -> None:
    one, three = (server.ask(max_tokens=7, ignore_eos=True, n=n)["usage"] for n in (1, 3))
    assert (one["completion_tokens"], three["completion_tokens"]) == (7, 21)
    assert one["prompt_tokens"] == three["prompt_tokens"]
    assert one["total_tokens"] == one["prompt_tokens"] + 7


def test_a_stream_tells_its_usage_last_if_asked(server: Client) -> None:
    *others, last = server.stream("usage", max_tokens=5, ignore_eos=True, stream_options={"include_usage": True})
    assert all(event["usage"] is None for event in others)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert last["usage"]["prompt_tokens"] == server.ask("usage")["usage"]["prompt_tokens"]


def cached_tokens(answer: Json) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_prompt_asked_again_comes_out_of_the_cache_and_changes_nothing(server: Client) -> None:
    text = "Log of the pilot boat. " * 8
    cold, warm = server.ask(text), server.ask(text)
    assert cached_tokens(cold) == 0
    assert 96 <= cached_tokens(warm) < warm["usage"]["prompt_tokens"]
    assert warm["choices"] == cold["choices"]


def test_a_cache_salt_keeps_tenants_apart(server: Client) -> None:
    text = "Log of the lightship. " * 8
    hits = [cached_tokens(server.ask(text, **salt)) for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"})]
    assert hits == [0, 0, 0]
    assert cached_tokens(server.ask(text, cache_salt="a")) > 0


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_limit_ends_an_answer_with_length(server: Client, name: str) -> None:
    fields: dict[str, Any] = {"max_tokens": 9, "ignore_eos": True, name: 3}
    answer, events = server.ask(**fields), server.stream(**fields)
    assert (answer["usage"]["completion_tokens"], choice_of(answer)["finish_reason"]) == (3, "length")
    assert end_of(events) == "length"


def test_without_a_limit_an_answer_fills_the_context(server: Client) -> None:
    usage = server.ask("a" * 440, max_tokens=None, ignore_eos=True)["usage"]
    assert usage["total_tokens"] == server.model.context_length


def test_an_end_token_ends_an_answer_unless_it_is_ignored(server: Client) -> None:
    only_ends: Json = {"logit_bias": {str(server.token_id(END)): 100}, "max_tokens": 4}
    answer = server.ask(**only_ends)
    assert (choice_of(answer)["message"]["content"], choice_of(answer)["finish_reason"]) == ("", "stop")
    assert answer["usage"]["completion_tokens"] == 1
    ignored = server.ask(**only_ends, ignore_eos=True)
    assert (choice_of(ignored)["message"]["content"], choice_of(ignored)["finish_reason"]) == ("", "length")
    assert ignored["usage"]["completion_tokens"] == 4
    assert server.text(**only_ends, ignore_eos=True, skip_special_tokens=False) == END * 4


def test_min_tokens_hold_the_end_token_back(server: Client) -> None:
    fields: Json = {"logit_bias": {str(server.token_id(END)): 100}, "min_tokens": 3, "max_tokens": 8}
    answer = server.ask(**fields)
    assert (answer["usage"]["completion_tokens"], choice_of(answer)["finish_reason"]) == (4, "stop")


def test_a_stop_token_ends_an_answer_and_leaves_no_text(server: Client) -> None:
    stop = server.token_id("a")
    answer = server.ask(logit_bias={str(stop): 100}, stop_token_ids=[stop])
    assert (choice_of(answer)["message"]["content"], choice_of(answer)["finish_reason"]) == ("", "stop")
    assert answer["usage"]["completion_tokens"] == 1


def says(text: str) -> Json:
    """Fields that leave the model no other answer."""
    return {"guided_choice": [text], "max_tokens": 64}


def test_a_guide_can_make_the_model_say_anything(server: Client) -> None:
    for text in (TALE, "naïve 🦜"):
        answer = server.ask(**says(text))
        assert (choice_of(answer)["message"]["content"], choice_of(answer)["finish_reason"]) == (text, "stop")
        assert text_of(server.stream(**says(text))) == text


@pytest.mark.parametrize("stop", ["three", ["four", "o th"], "r"])
def test_a_stop_string_cuts_the_text_wherever_its_tokens_begin(server: Client, stop: str | list[str]) -> None:
    stops = [stop] if isinstance(stop, str) else stop
    cut = TALE[: min(TALE.index(each) for each in stops)]
    answer, events = server.ask(**says(TALE), stop=stop), server.stream(**says(TALE), stop=stop)
    assert (choice_of(answer)["message"]["content"], choice_of(answer)["finish_reason"]) == (cut, "stop")
    assert (text_of(events), end_of(events)) == (cut, "stop")


def test_a_stop_string_stops_a_free_answer_too(server: Client) -> None:
    free = server.text()
    stop = free[2:4]
    assert server.text(stop=stop) == free[: free.index(stop)]


def test_a_stop_string_can_stay_in_the_text(server: Client) -> None:
    assert server.text(**says(TALE), stop="two", include_stop_str_in_output=True) == "one two"


def test_what_only_begins_like_a_stop_string_comes_with_the_end(server: Client) -> None:
    assert text_of(server.stream(**says(TALE), stop="fourth")) == TALE
