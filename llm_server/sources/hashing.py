"""What tells one version of a model's files from another: their sha256, and a stamp that costs no reading."""

import hashlib
from pathlib import Path

from engines.model_files import ModelFiles
from engines.progress import Phase, Progress
from llm_server.sources import SourceError

_CHUNK_BYTES = 4 * 2**20


def hash_model(model: ModelFiles, progress: Progress) -> str:
    """Return the sha256 of a model: of its file, or where it has several, of the list of their names and hashes."""
    hashes = _hash_files(model.files, progress)
    if len(hashes) == 1:
        return hashes[0]
    lines = (f"{file.name} {digest}\n" for file, digest in zip(model.files, hashes, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def stamp_model(model: ModelFiles) -> str:
    """Return a text that changes with the path, size or time of change of any of the files."""
    states = ((file, file.stat()) for file in model.files)
    lines = "".join(f"{file.resolve()} {state.st_size} {state.st_mtime_ns}\n" for file, state in states)
    return hashlib.sha256(lines.encode()).hexdigest()


def check_download(path: Path, expected_sha256: str, progress: Progress) -> None:
    """Raise SourceError unless the file has this sha256; then it is deleted, to be downloaded anew."""
    actual = _hash_files((path,), progress)[0]
    if actual != expected_sha256:
        path.unlink()
        raise SourceError(f"{path.name} is damaged: its sha256 is {actual} instead of {expected_sha256}")


def _hash_files(files: tuple[Path, ...], progress: Progress) -> list[str]:
    """Return the sha256 of each file in hexadecimal, reporting the bytes done of all."""
    done, total = 0, sum(file.stat().st_size for file in files)
    hashes = []
    for file in files:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                progress(Phase.VERIFY, done, total)
        hashes.append(digest.hexdigest())
    return hashes
