"""A GGUF file that is on this machine already: `gguf:path/to/model.gguf`."""

from pathlib import Path

from engines.progress import Progress
from llm_server.sources import SourceError
from llm_server.sources.hashing import hash_file


class GgufFileSource:
    """A local file, used where it lies. Raises SourceError if there is none."""

    def __init__(self, location: str) -> None:
        self._path = Path(location).expanduser().resolve()
        if not self._path.is_file():
            raise SourceError(f"there is no file {self._path}")

    @property
    def text(self) -> str:
        """The source with the absolute path."""
        return f"gguf:{self._path}"

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return self._path.name

    def expected_sha256(self, progress: Progress) -> str:
        """Hash the file as it is now: it may have changed since an engine folder was built from it."""
        return hash_file(self._path, progress)

    def fetch(self, scratch: Path, progress: Progress) -> Path:
        """Return the file itself; nothing is copied."""
        return self._path
