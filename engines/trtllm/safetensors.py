"""The header of a safetensors file: eight bytes of length, then JSON with type, shape and offsets per tensor.

No weight is read. Source: the safetensors format, github.com/huggingface/safetensors.
"""

import json
from pathlib import Path
from typing import Any

_MAX_HEADER_BYTES = 100 * 2**20
_METADATA = "__metadata__"


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """Return `dtype`, `shape` and `data_offsets` of each tensor by its name. Raises OSError and ValueError."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _MAX_HEADER_BYTES:
            raise ValueError("its header is too long")
        header: dict[str, dict[str, Any]] = json.loads(stream.read(length))
    header.pop(_METADATA, None)
    return header
