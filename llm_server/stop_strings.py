"""Stop strings: cut the text where one begins, and never let its first half out before that is decided."""

from collections.abc import Sequence


class StopStrings:
    """Watches one answer's text for the earliest stop string, in time linear in the text.

    Text that may still become a stop string is held back. `hit` is the string that was found; the answer ends there.
    Where several begin at the same place the shortest counts, wherever the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in stops]
        self._include = include
        self._held = ""  # text fed, not yet given out; it begins at offset _start of the whole text
        self._start = 0
        self._found: tuple[int, str] | None = None  # offset of the best whole match and its string, not yet certain
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """Return the text that certainly stands before any stop string; once `hit` is set, the last of it."""
        if not self._matchers:
            return text
        position = self._start + len(self._held)
        self._held += text
        for char in text:
            position += 1
            self._advance(char, position)
            if self._found is not None and self._pending_from(position) >= self._found[0]:
                return self._cut()
        return self._release(self._pending_from(position))

    def flush(self) -> str:
        """End the text: what only began like a stop string is given out."""
        if self._found is not None and self.hit is None:
            return self._cut()
        return self._release(self._start + len(self._held))

    def _advance(self, char: str, position: int) -> None:
        for matcher in self._matchers:
            if matcher.step(char):
                begin = position - len(matcher.stop)
                if self._found is None or begin < self._found[0]:
                    self._found = (begin, matcher.stop)

    def _pending_from(self, position: int) -> int:
        """Where the earliest stop string that may still be completed begins."""
        return position - max(matcher.matched for matcher in self._matchers)

    def _release(self, end: int) -> str:
        count = end - self._start
        released, self._held = self._held[:count], self._held[count:]
        self._start = end
        return released

    def _cut(self) -> str:
        assert self._found is not None
        begin, self.hit = self._found
        released = self._release(begin + len(self.hit) if self._include else begin)
        self._held = ""
        return released


class _Matcher:
    """Knuth, Morris, Pratt: how much of one string the text ends with, in amortised constant time per character."""

    __slots__ = ("_borders", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0  # after a whole match, the longest border: what may begin the next one
        self._borders = _borders(stop)

    def step(self, char: str) -> bool:
        """Take the next character; true where it completes the string."""
        matched = self.matched
        while matched and self.stop[matched] != char:
            matched = self._borders[matched - 1]
        matched += self.stop[matched] == char
        complete = matched == len(self.stop)
        self.matched = self._borders[-1] if complete else matched
        return complete


def _borders(text: str) -> list[int]:
    """For every prefix, the length of its longest proper suffix that is a prefix too."""
    borders = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = borders[length - 1]
        length += text[index] == text[length]
        borders[index] = length
    return borders
