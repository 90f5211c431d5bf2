"""How tokens are drawn, and what is reported of the draw."""

import math
from typing import Any

import pytest

from tests.llm_server.conformance.client import Client, Json
from tests.llm_server.serving import text_of

HOT: Json = {"temperature": 1.5, "max_tokens": 20}


def contents(answer: Json) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_a_seed_repeats_its_answer_whole_and_streamed(server: Client) -> None:
    first, second, other = (server.text(**HOT, seed=seed) for seed in (5, 5, 6))
    assert first == second
    assert first != other
    assert text_of(server.stream(**HOT, seed=5)) == first


def test_choices_differ_and_each_is_that_of_the_next_seed(server: Client) -> None:
    choices = contents(server.ask(**HOT, n=3, seed=2**63))
    assert choices == [server.text(**HOT, seed=(2**63 + index)) for index in range(3)]
    assert len(set(choices)) == 3
    events = server.stream(**HOT, n=3, seed=2**63)
    assert [text_of(events, index) for index in range(3)] == choices


def test_without_a_seed_answers_differ(server: Client) -> None:
    choices = [*contents(server.ask(**HOT, n=2)), server.text(**HOT)]
    assert len(set(choices)) == 3


GREEDY_WAYS: list[Json] = [{"top_k": 1}, {"top_p": 0}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-7}]


@pytest.mark.parametrize("fields", GREEDY_WAYS, ids=str)
def test_what_leaves_only_the_most_likely_token_is_greedy(server: Client, fields: Json) -> None:
    assert server.text(**{"temperature": 1.5, **fields}) == server.text(temperature=0)


def test_top_k_of_nothing_keeps_everything(server: Client) -> None:
    drawn = [server.text(**HOT, top_k=top_k, seed=3) for top_k in (-1, 0)]
    assert drawn == [server.text(**HOT, seed=3)] * 2


PENALTIES: Json = {"repetition_penalty": 5.0, "presence_penalty": 2.0, "frequency_penalty": 2.0}


@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_changes_a_greedy_answer_and_one_of_nothing_does_not(server: Client, name: str) -> None:
    nothing = 1.0 if name == "repetition_penalty" else 0.0
    long: Json = {"max_tokens": 40, "ignore_eos": True}
    plain = server.text(**long)
    off: Json = {name: nothing}
    if name not in server.refuses:
        assert server.text(**long, **off) == plain
    penalised = server.text(**long, **{name: PENALTIES[name]})
    assert penalised != plain
    assert text_of(server.stream(**long, **{name: PENALTIES[name]})) == penalised


def biased(server: Client, **biases: float) -> Json:
    """Fields that make one-letter tokens more likely."""
    return {"logit_bias": {str(server.token_id(token)): bias for token, bias in biases.items()}, "max_tokens": 7}


def test_a_bias_forces_a_token_and_forbids_another(server: Client) -> None:
    assert server.text(**biased(server, a=100)) == "a" * 7
    assert server.text(**biased(server, a=100, b=50)) == "a" * 7
    assert server.text(**biased(server, a=-100, b=100)) == "b" * 7


@pytest.mark.parametrize(("bad", "said"), [(["a"], "bbbbbbb"), (["aaa"], "aabaaba"), (["ba", "aa"], "abbbbbb")])
def test_bad_words_are_never_said(server: Client, bad: list[str], said: str) -> None:
    fields = {**biased(server, a=100, b=50), "bad_words": bad}
    assert server.text(**fields) == said
    assert text_of(server.stream(**fields)) == said


def logprobs_of(answer: Json) -> list[Json]:
    return list(answer["choices"][0]["logprobs"]["content"])


def test_logprobs_stand_beside_each_token_best_first(server: Client) -> None:
    answer = server.ask(logprobs=True, top_logprobs=5)
    entries = logprobs_of(answer)
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace") == contents(answer)[0]
    for entry in entries:
        best = entry["top_logprobs"]
        assert len(best) == 5
        assert [each["logprob"] for each in best] == sorted((each["logprob"] for each in best), reverse=True)
        assert best[0] == {name: entry[name] for name in ("token", "logprob", "bytes")}  # it is greedy
        assert sum(math.exp(each["logprob"]) for each in best) <= 1.0 + 1e-6
        assert all(each["token"] == bytes(each["bytes"]).decode(errors="replace") for each in best)


def test_a_stream_has_the_same_logprobs(server: Client) -> None:
    fields: Json = {"logprobs": True, "top_logprobs": 2}
    choices = [event["choices"][0] for event in server.stream(**fields)]
    streamed = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert streamed == logprobs_of(server.ask(**fields))


def test_logprobs_alone_report_no_alternatives(server: Client) -> None:
    entries = logprobs_of(server.ask(logprobs=True, max_tokens=4, ignore_eos=True, skip_special_tokens=False))
    assert [entry["top_logprobs"] for entry in entries] == [[]] * 4


def test_logprobs_are_those_of_the_raw_distribution(server: Client) -> None:
    fields: Json = {"logprobs": True, "top_logprobs": 3}
    raw = logprobs_of(server.ask(**fields, max_tokens=1))[0]["top_logprobs"]
    for edits in (biased(server, a=100), {"temperature": 2.0, "top_k": 2}):
        edited = logprobs_of(server.ask(**{**fields, **edits, "max_tokens": 1}))[0]
        for mine, true in zip(edited["top_logprobs"], raw, strict=True):
            assert mine["token"] == true["token"]
            assert mine["logprob"] == pytest.approx(true["logprob"], abs=1e-4)
        assert edited["logprob"] <= raw[0]["logprob"]


def test_the_prompts_logprobs_cover_all_of_it(server: Client) -> None:
    text = "Rain over the pier. " * 4
    cold, warm = (server.ask(text, prompt_logprobs=2, max_tokens=1) for _ in range(2))
    first, *others = cold["prompt_logprobs"]
    assert first is None
    assert len(others) + 1 == cold["usage"]["prompt_tokens"]
    assert all(2 <= len(entry) <= 3 for entry in others)
    assert all(value["logprob"] <= 0 for entry in others for value in entry.values())
    assert [set(entry) for entry in warm["prompt_logprobs"][1:]] == [set(entry) for entry in others]


def test_without_a_wish_nothing_is_reported(server: Client) -> None:
    answer: Any = server.ask(logprobs=False)
    assert answer["choices"][0]["logprobs"] is None
    assert "prompt_logprobs" not in answer
