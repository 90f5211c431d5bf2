import pytest

from benchmarks.sse import Answer, AnswerReader, Failure, Usage
from tests.benchmarks.scripted_server import DONE, FINISH, ROLE, delta, event, usage

SENT_AT = 100.0


def read(*parts: bytes) -> Answer | Failure:
    """Read parts that arrive one second apart, the first one a second after the request."""
    reader = AnswerReader()
    for second, part in enumerate(parts, 1):
        reader.feed(part, SENT_AT + second)
    return reader.result(SENT_AT)


def answer(*parts: bytes) -> Answer:
    result = read(*parts)
    assert isinstance(result, Answer), result
    return result


def failure(*parts: bytes) -> Failure:
    result = read(*parts)
    assert isinstance(result, Failure), result
    return result


def test_notes_when_text_came_how_it_ended_and_what_it_cost() -> None:
    found = answer(ROLE, delta(content="a"), delta(content=" b"), FINISH, usage(7, 3, 2), DONE)
    assert found == Answer([2, 3], last_token_s=4, end_s=6, finish_reason="length", usage=Usage(7, 3, 2))


STREAM = b": ping\r\n\r\n" + b"".join(
    (ROLE, delta(content='"'), delta(content="å"), delta("stop"), usage(7, 3), DONE)
).replace(b"\n", b"\r\n")


def test_reads_the_same_wherever_the_network_cuts() -> None:
    for cut in range(len(STREAM)):
        found = answer(STREAM[:cut], STREAM[cut:])
        assert (len(found.text_times_s), found.finish_reason, found.usage) == (2, "stop", Usage(7, 3)), STREAM[:cut]


def test_events_of_one_read_share_their_time() -> None:
    assert answer(delta(content="a") + delta(content="b"), FINISH + DONE).text_times_s == [1, 1]


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning"])
@pytest.mark.parametrize("space", [b"", b" "])
def test_text_is_content_or_reasoning_however_json_is_spaced(field: str, space: bytes) -> None:
    text = delta(**{field: "x"}).replace(b":", b":" + space)
    assert answer(ROLE, text, FINISH, DONE).text_times_s == [2]


def test_an_answer_about_json_does_not_look_like_control_events_or_text() -> None:
    spoken = delta(content='{"finish_reason":"stop","error":{}} data: [DONE]')
    quoted = delta(role='{"content":"x"}')
    assert answer(quoted, spoken, FINISH, DONE).text_times_s == [2]


def test_the_last_text_may_carry_the_finish_reason_and_the_usage() -> None:
    last = event(
        {
            "choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        }
    )
    found = answer(delta(content="a"), last, DONE)
    assert (found.text_times_s, found.last_token_s, found.finish_reason) == ([1, 2], 2, "stop")
    assert found.usage == Usage(5, 2)


def test_an_answer_that_ends_at_once_has_its_end_token_only() -> None:
    found = answer(ROLE, delta("stop"), usage(5, 1), DONE)
    assert (found.text_times_s, found.last_token_s) == ([], 2)


def test_usage_without_counts_is_no_usage() -> None:
    assert answer(delta(content="a"), FINISH, event({"choices": [], "usage": {"total_tokens": 3}}), DONE).usage is None


def test_what_breaks_off_is_a_failure() -> None:
    assert failure(ROLE, delta(content="a"), FINISH).kind == "truncated"
    assert failure().kind == "truncated"
    assert failure(ROLE, DONE).kind == "empty"


def test_an_error_in_mid_stream_is_a_failure_whatever_follows() -> None:
    found = failure(delta(content="a"), event({"error": {"message": "out of memory"}}), DONE)
    assert found.kind == "stream_error"
    assert "out of memory" in found.message


def test_an_event_that_is_no_json_object_is_a_failure() -> None:
    assert failure(delta(content="a"), b"data: oops\n\n", FINISH, DONE) == Failure("bad_event", "oops")
    assert failure(delta(content="a"), b"data: [1]\n\n", FINISH, DONE).kind == "bad_event"
