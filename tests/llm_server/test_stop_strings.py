from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llm_server.stop_strings import StopStrings

texts = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def cut_up(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in pairwise(places)]


def whole(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    found = sorted((text.find(stop), len(stop), stop) for stop in stops if stop in text)
    if not found:
        return text, None
    begin, length, stop = found[0]
    return text[: begin + length if include else begin], stop


@given(texts, stop_lists, st.lists(st.integers(0, 30)), st.booleans())
def test_text_ends_before_the_earliest_stop_string_wherever_it_is_cut(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    watcher = StopStrings(stops, include=include)
    out = ""
    for piece in cut_up(text, cuts):
        out += watcher.feed(piece)
        if watcher.hit:
            break
    else:
        out += watcher.flush()
    assert (out, watcher.hit) == whole(text, stops, include)


@given(texts, stop_lists)
def test_nothing_is_held_back_that_cannot_begin_a_stop_string(text: str, stops: list[str]) -> None:
    watcher = StopStrings(stops)
    released = watcher.feed(text)
    if watcher.hit is None:
        held = text[len(released) :]
        assert not held or any(stop.startswith(held) or held in stop or stop in text for stop in stops)
        assert len(held) <= max(map(len, stops), default=0) * 2


def test_half_a_stop_string_stays_back_until_it_is_decided() -> None:
    watcher = StopStrings(["<end>"])
    assert [watcher.feed(piece) for piece in ("a<", "en", "x<e", "nd")] == ["a", "", "<enx", ""]
    assert watcher.flush() == "<end"
    assert watcher.hit is None


def test_without_stop_strings_text_passes() -> None:
    watcher = StopStrings([])
    assert watcher.feed("abc") == "abc"
    assert watcher.flush() == ""
