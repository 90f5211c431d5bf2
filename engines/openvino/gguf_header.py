"""Walks the header of a GGUF file before the `gguf` package does, which trusts every count in it.

A damaged or hostile header may claim 2^60 strings. Each claim is held against the bytes that are left in the file and
against generous ceilings, so that reading a header costs time and memory in proportion to a vocabulary.
Source: the GGUF specification, version 3, docs/gguf.md in ggml.
"""

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# size of a value by its type: (u)int8 to float32, bool, then the 64-bit types
_SIZES: Mapping[int, int] = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MAX_PAIRS = 65_536
_MAX_TENSORS = 1_000_000
_MAX_ELEMENTS = 4_000_000  # of all arrays: three times the tokens, types, scores and merges of the largest vocabularies
_MAX_DIMENSIONS = 4


class GgufHeaderError(ValueError):
    """A header that no whole GGUF file has."""


def check_header(path: Path) -> None:
    """Raise GgufHeaderError unless every count in the header fits the file, OSError if it cannot be read."""
    with path.open("rb") as file:
        if path.stat().st_size < 24:  # magic, version and two counts; an empty file cannot be mapped either
            raise GgufHeaderError("it ends within its header")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _Walk(content).check()


class _Walk:
    """A place in the header, moving on."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0
        self._elements_left = _MAX_ELEMENTS

    def check(self) -> None:
        if self._content[:4] != _MAGIC:
            raise GgufHeaderError("GGUF magic invalid")
        self._at = 4
        version = self._u32()
        if version not in _VERSIONS:
            raise GgufHeaderError(f"GGUF version {version} is not one of {', '.join(map(str, _VERSIONS))}")
        num_tensors, num_pairs = self._u64(), self._u64()
        self._refuse_above("tensors", num_tensors, _MAX_TENSORS)
        self._refuse_above("metadata values", num_pairs, _MAX_PAIRS)
        for _ in range(num_pairs):
            self._skip(self._u64())  # the key
            self._skip_value(self._u32())
        for _ in range(num_tensors):
            self._skip_tensor()

    def _skip_value(self, kind: int) -> None:
        if kind == _STRING:
            self._skip(self._u64())
        elif kind == _ARRAY:
            self._skip_array(self._u32(), self._u64())
        elif kind in _SIZES:
            self._skip(_SIZES[kind])
        else:
            raise GgufHeaderError(f"it has a value of the unknown type {kind}")

    def _skip_array(self, kind: int, length: int) -> None:
        self._refuse_above("array elements", length, self._elements_left)
        self._elements_left -= length
        if kind in _SIZES:
            self._skip(_SIZES[kind] * length)
        elif kind == _STRING:
            for _ in range(length):
                self._skip(self._u64())
        else:
            raise GgufHeaderError(f"it has an array of the type {kind}")

    def _skip_tensor(self) -> None:
        self._skip(self._u64())  # the name
        num_dimensions = self._u32()
        self._refuse_above("dimensions of a tensor", num_dimensions, _MAX_DIMENSIONS)
        self._skip(8 * num_dimensions + 4 + 8)  # sizes, type, offset

    def _refuse_above(self, what: str, count: int, limit: int) -> None:
        if count > limit:
            raise GgufHeaderError(f"it claims {count} {what}")

    def _skip(self, num_bytes: int) -> None:
        self._at += num_bytes
        if self._at > len(self._content):
            raise GgufHeaderError("it ends within its header")

    def _u32(self) -> int:
        return self._number("<I", 4)

    def _u64(self) -> int:
        return self._number("<Q", 8)

    def _number(self, layout: str, size: int) -> int:
        start = self._at
        self._skip(size)
        number: int = struct.unpack_from(layout, self._content, start)[0]
        return number
