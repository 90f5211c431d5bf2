"""Downloads over HTTP that go on where an interrupted one ended, be it by a kill."""

from collections.abc import Mapping
from pathlib import Path

from huggingface_hub.file_download import http_get
from huggingface_hub.utils.tqdm import disable_progress_bars

_RANGE_NOT_SATISFIABLE = 416
_MAX_REASON_CHARS = 300


def download(url: str, file: Path, *, size_bytes: int | None = None, headers: Mapping[str, str] | None = None) -> None:
    """Write what is at a URL into `file`, which appears once it is whole. Its parts gather beside it, in `.partial`.

    A server that knows no ranges sends everything again. The caller checks the hash. Raises what the HTTP client below
    huggingface_hub raises, which differs from version to version.
    """
    disable_progress_bars()  # ours is shown
    partial = _partial(file)
    with partial.open("ab") as stream:
        try:
            http_get(url, stream, resume_size=stream.tell(), headers=dict(headers or {}), expected_size=size_bytes)
        except Exception as exc:
            if getattr(getattr(exc, "response", None), "status_code", None) == _RANGE_NOT_SATISFIABLE:
                partial.unlink()  # it is longer than the file
            raise
    partial.replace(file)


def has_begun(file: Path) -> bool:
    """Whether parts of a file are here."""
    partial = _partial(file)
    return partial.is_file() and partial.stat().st_size > 0


def one_line(exc: Exception) -> str:
    """Say why a request failed."""
    return " ".join(str(exc).split())[:_MAX_REASON_CHARS] or type(exc).__name__


def _partial(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")
