import itertools
import json
from pathlib import Path

import pytest

from benchmarks.data import make_documents
from benchmarks.prompts import (
    WORDS,
    Prompt,
    PromptError,
    RequestOptions,
    cycle_prompts,
    encode_body,
    random_prompts,
    read_prompts,
    share_prefix,
)

PROMPTS = Path(make_documents.__file__).with_name("prompts.jsonl")
HELLO = Prompt(({"role": "user", "content": "Hello"},))


def test_the_default_prompts_are_of_mixed_lengths_and_none_is_there_twice() -> None:
    prompts = read_prompts(PROMPTS)
    lengths = sorted(len(str(prompt.messages)) for prompt in prompts)
    assert len(prompts) == 70
    assert lengths[0] < 100
    assert lengths[-1] > 5000
    assert len({str(prompt.messages) for prompt in prompts}) == len(prompts)


def test_the_long_prompts_are_those_their_script_makes(capsys: pytest.CaptureFixture[str]) -> None:
    make_documents.main()
    assert PROMPTS.read_text(encoding="utf-8").splitlines()[64:] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"messages": []}', '{"messages": ["hi"]}', '{"messages": [{"role": "user"}], "max_tokens": "many"}'],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hello"}]}\n\n' + line, encoding="utf-8")
    with pytest.raises(PromptError, match=r"prompts\.jsonl:3"):
        read_prompts(path)


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="No such file"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(PromptError, match="no prompts"):
        read_prompts(tmp_path / "empty.jsonl")


def test_a_cycle_asks_everything_before_it_repeats_anything() -> None:
    prompts = [Prompt(({"role": "user", "content": str(number)},)) for number in range(9)]
    twice = list(itertools.islice(cycle_prompts(prompts, seed=1), 18))
    assert twice[:9] == twice[9:]
    assert sorted(map(str, twice[:9])) == list(map(str, prompts))
    assert twice[:9] != prompts


def test_random_prompts_have_their_length_and_follow_from_the_seed() -> None:
    first = list(itertools.islice(random_prompts(30, seed=1), 5))
    assert first == list(itertools.islice(random_prompts(30, seed=1), 5))
    texts = [str(prompt.messages[0]["content"]) for prompt in first]
    assert len(set(texts)) == 5
    assert all(len(text.split()) == 30 and set(text.split()) <= set(WORDS) for text in texts)


def test_a_shared_prefix_begins_every_prompt_and_keeps_its_own_system_message() -> None:
    own = Prompt(({"role": "system", "content": "Be brief."}, *HELLO.messages), max_tokens=5)
    plain, with_own = share_prefix(iter([HELLO, own]), 12, seed=3)
    prefix = str(plain.messages[0]["content"])
    assert len(prefix.split()) == 12
    assert plain.messages == ({"role": "system", "content": prefix}, *HELLO.messages)
    assert with_own.messages == ({"role": "system", "content": f"{prefix}\nBe brief."}, *HELLO.messages)
    assert with_own.max_tokens == 5


def test_a_body_asks_for_a_stream_with_usage_and_for_nothing_that_was_not_asked_for() -> None:
    assert json.loads(encode_body(HELLO, "m", RequestOptions(), 3)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 128,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }


def test_a_body_carries_the_options_and_a_seed_of_its_own() -> None:
    options = RequestOptions(max_tokens=9, ignore_eos=True, temperature=0.7, top_p=0.9, seed=40)
    body = json.loads(encode_body(Prompt(HELLO.messages, max_tokens=5), "m", options, 3))
    assert (body["max_tokens"], body["ignore_eos"], body["temperature"], body["top_p"]) == (9, True, 0.7, 0.9)
    assert body["seed"] == 43


def test_a_prompt_has_its_own_bound_unless_one_is_given() -> None:
    body = json.loads(encode_body(Prompt(HELLO.messages, max_tokens=5), "m", RequestOptions(), 0))
    assert body["max_tokens"] == 5
