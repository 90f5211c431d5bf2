from tests.doubles import ScriptedExecutor, says
from tests.llm_server.serving import events_of, post_chat, text_of


def test_a_stream_opens_with_the_role_and_ends_with_its_finish_and_done() -> None:
    events = events_of(post_chat(ScriptedExecutor(says("Hi 🦜!")), stream=True))
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == "Hi 🦜!"
    assert events[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in events}) == 1


def test_a_whole_answer() -> None:
    completion = post_chat(ScriptedExecutor(says("Hi 🦜!"))).json()
    message = {"role": "assistant", "content": "Hi 🦜!", "refusal": None}
    assert completion["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert completion["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
