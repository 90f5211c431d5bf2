"""A header is refused before its counts are believed, in little time and memory."""

import struct
import tracemalloc
from pathlib import Path

import pytest

from engines.openvino.gguf_header import GgufHeaderError, check_header
from engines.openvino.gguf_model import GgufError, GgufModel
from tests.tiny_gguf import write_tiny_gguf

UINT8, STRING, ARRAY = 0, 8, 9
HUGE = 2**60


def header(*pairs: bytes, num_tensors: int = 0, num_pairs: int | None = None, version: int = 3) -> bytes:
    return struct.pack(
        "<4sIQQ", b"GGUF", version, num_tensors, len(pairs) if num_pairs is None else num_pairs
    ) + b"".join(pairs)


def array(kind: int, length: int, content: bytes = b"") -> bytes:
    return struct.pack("<Q1sIIQ", 1, b"k", ARRAY, kind, length) + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends within its header"),
        (b"GGUF" + bytes(10), "ends within its header"),
        (b"LMGG" + bytes(30), "magic invalid"),
        (header(version=1) + bytes(8), "version 1 is not one of 2, 3"),
        (header(num_tensors=HUGE), f"claims {HUGE} tensors"),
        (header(num_pairs=HUGE), f"claims {HUGE} metadata values"),
        (header(num_pairs=5), "ends within its header"),
        (header(array(UINT8, HUGE)), f"claims {HUGE} array elements"),
        (header(array(STRING, HUGE)), f"claims {HUGE} array elements"),
        (header(array(STRING, 3_000_000)), "ends within its header"),
        (header(array(STRING, 2, struct.pack("<QQ", HUGE, 0))), "ends within its header"),
        (header(array(UINT8, 3_000_000, bytes(3_000_000)), array(UINT8, 3_000_000)), "claims 3000000 array elements"),
        (header(array(ARRAY, 1)), "array of the type 9"),
        (header(struct.pack("<Q1sI", 1, b"k", 77)), "unknown type 77"),
        (header(struct.pack("<Q", HUGE)), "ends within its header"),
        (header(num_tensors=1) + struct.pack("<QI", 0, 9), "claims 9 dimensions"),
        (header(num_tensors=1) + struct.pack("<QI", 0, 2), "ends within its header"),
    ],
)
def test_a_header_that_claims_too_much_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(GgufHeaderError, match=message):
        check_header(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    with pytest.raises(GgufError, match=f"is not a whole GGUF file: .*{message}"):
        GgufModel.open(path)


def test_a_whole_file_passes(tmp_path: Path) -> None:
    check_header(write_tiny_gguf(tmp_path / "tiny.gguf"))
