import threading
from collections.abc import Iterator

import pytest

from engines.openvino.mask_filler import MAX_LOST_THREADS, MaskFiller

SHORT_S = 0.05


class Matcher:
    """Records what is done with it; `endless` ones are filled when the test ends."""

    def __init__(self, end: threading.Event | None = None, error: Exception | None = None) -> None:
        self._end = end
        self._error = error
        self.is_filled = False
        self.reason: str | None = None

    def fill(self) -> None:
        if self._end is not None:
            self._end.wait()
        if self._error is not None:
            raise self._error
        self.is_filled = True

    def give_up(self, reason: str) -> None:
        self.reason = reason


@pytest.fixture
def end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def fill(filler: MaskFiller, *matchers: Matcher) -> None:
    filler.begin(matchers)
    filler.wait()


def test_all_masks_are_filled_round_after_round() -> None:
    filler = MaskFiller()
    for size in (3, 0, 1):
        matchers = [Matcher() for _ in range(size)]
        fill(filler, *matchers)
        assert all(matcher.is_filled for matcher in matchers)
    filler.close()


def test_a_mask_without_end_is_given_up_and_the_others_are_filled(end: threading.Event) -> None:
    filler = MaskFiller(SHORT_S)
    first, endless, last = Matcher(), Matcher(end), Matcher()
    fill(filler, first, endless, last)
    assert (first.is_filled, endless.is_filled, last.is_filled) == (True, False, True)
    assert endless.reason is not None
    assert (first.reason, last.reason) == (None, None)
    again = Matcher()
    fill(filler, again)
    assert again.is_filled


def test_too_many_lost_threads_are_told_until_they_come_back(end: threading.Event) -> None:
    filler = MaskFiller(SHORT_S)
    for _ in range(MAX_LOST_THREADS):
        assert not filler.is_overrun
        fill(filler, Matcher(end))
    assert filler.is_overrun
    end.set()
    for worker in filler._lost:
        assert worker._thread is not None
        worker._thread.join()
    assert not filler.is_overrun


def test_an_error_of_the_parser_concerns_its_sequence_only() -> None:
    filler = MaskFiller()
    broken, sound = Matcher(error=RuntimeError("broken")), Matcher()
    fill(filler, broken, sound)
    assert broken.reason == "the parser failed: broken"
    assert sound.is_filled
