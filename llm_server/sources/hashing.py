"""The sha256 of large files, with progress."""

import hashlib
from pathlib import Path

from engines.progress import Phase, Progress
from llm_server.sources import SourceError

_CHUNK_BYTES = 4 * 2**20


def hash_file(path: Path, progress: Progress) -> str:
    """Return the sha256 of a file in hexadecimal, reporting the bytes done."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(Phase.VERIFY, done, total)
    return digest.hexdigest()


def check_file(path: Path, expected_sha256: str, progress: Progress) -> None:
    """Raise SourceError unless the file has this sha256."""
    actual = hash_file(path, progress)
    if actual != expected_sha256:
        raise SourceError(f"{path.name} is damaged: its sha256 is {actual} instead of {expected_sha256}")
