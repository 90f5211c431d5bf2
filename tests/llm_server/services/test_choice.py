from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from engines.contract import FinishReason, GenerationRequest, SamplingParams, TokenLogprob, TokenOutput
from llm_server.registry import HiddenTokens
from llm_server.services.choice import ChoiceReader, ChoiceUpdate, TokenPiece
from llm_server.stop_strings import StopStrings
from llm_server.tokenizer import Detokenizer
from stylers.output import PlainParser
from tests.doubles import END_ID, byte_tokenizer

TOKENIZER = byte_tokenizer()
MARK_ID = 257  # <|im_start|>, which nobody reads

texts = st.text(alphabet="ab🦜", max_size=8).map(lambda text: [*text.encode()])
parts = st.lists(st.one_of(texts, st.just([MARK_ID])), max_size=5)
scripts = parts.map(lambda lists: [*chain.from_iterable(lists)])


def read(script: list[int], cuts: list[int], stops: list[str], finish: FinishReason) -> list[ChoiceUpdate]:
    """The updates of one choice whose tokens come in as many outputs as there are cuts."""
    token_ids = [*script, END_ID] if finish is FinishReason.STOP else script
    request = GenerationRequest("x", (1,), SamplingParams(logprobs=0), 99, frozenset((END_ID,)))
    hidden = HiddenTokens(TOKENIZER.special_tokens)
    reader = ChoiceReader(0, request, Detokenizer(TOKENIZER), StopStrings(stops), PlainParser(), hidden)
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(token_ids)}), len(token_ids)]
    updates = []
    for begin, end in pairwise(places):
        part = tuple(token_ids[begin:end])
        logprobs = tuple(TokenLogprob(token_id, -1.0) for token_id in part)
        updates.append(reader.read(TokenOutput(part, finish if end == len(token_ids) else None, logprobs)))
        if reader.finish_reason is not None:
            break
    return updates


def summed(updates: list[ChoiceUpdate]) -> tuple[str, list[TokenPiece], str | None]:
    text = "".join(delta.content or "" for update in updates for delta in update.deltas)
    return text, [piece for update in updates for piece in update.logprobs], updates[-1].finish_reason


@given(scripts, st.lists(st.integers(0, 60)), st.lists(st.sampled_from(["ab", "ba", "🦜a", "b🦜"]), max_size=2))
def test_outputs_that_gathered_are_read_as_if_they_had_come_one_by_one(
    script: list[int], cuts: list[int], stops: list[str]
) -> None:
    one_by_one = summed(read(script, [*range(99)], stops, FinishReason.STOP))
    assert summed(read(script, cuts, stops, FinishReason.STOP)) == one_by_one


@given(scripts)
def test_the_pieces_of_the_logprobs_join_to_the_text(script: list[int]) -> None:
    text, pieces, finish = summed(read([*script, 97], [*range(99)], [], FinishReason.LENGTH))
    assert b"".join(piece.piece for piece in pieces).decode() == text
    assert finish == "length"


def test_logprobs_wait_for_their_text() -> None:
    updates = read([*b"xa"], [1], ["ab"], FinishReason.LENGTH)
    assert [[piece.piece for piece in update.logprobs] for update in updates] == [[b"x"], [b"a"]]
    assert [update.finish_reason for update in updates] == [None, "length"]
