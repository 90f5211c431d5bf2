import re
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from stylers.literal_search import any_of

words = st.text("ab<|.", min_size=1, max_size=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(literals=st.lists(words, min_size=1, max_size=12), text=st.text("ab<|.", max_size=60))
def test_the_longest_literal_is_found_wherever_one_begins(literals: list[str], text: str) -> None:
    one_by_one = "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))
    assert re.findall(any_of(literals), text) == re.findall(one_by_one, text)


def test_nothing_is_found_where_nothing_is_looked_for() -> None:
    assert re.search(any_of([]), "") is None
    assert re.search(any_of([""]), "a") is None


def test_thousands_of_literals_do_not_make_the_search_slow() -> None:
    literals = [f"<added_{number}>" for number in range(2500)] + [f"<|{number}|>" for number in range(2500)]
    pattern = re.compile(any_of(literals))
    for text in ("<" * 100_000, "<added_" * 15_000, "<|2499" * 20_000, "<added_7>" * 10_000):
        start = time.perf_counter()
        found = pattern.findall(text)
        assert time.perf_counter() - start < 0.2, text[:10]  # tens of times as long when tried one by one
        assert set(found) <= {"<added_7>"}
