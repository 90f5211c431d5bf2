"""Models that are on this machine already: `gguf:path/to/model.gguf`, `folder:path/to/model`.

A folder holds a Hugging Face model, an OpenVINO IR, or one GGUF model.
"""

from pathlib import Path

from engines.model_files import ModelFiles, ModelFilesError
from engines.progress import Progress
from llm_server.sources import FetchedModel, SourceError
from llm_server.sources.hashing import hash_model, stamp_model


class LocalSource:
    """A file or folder, used where it lies. Raises SourceError if there is no whole model."""

    kind: str

    def __init__(self, location: str) -> None:
        try:
            self._model = ModelFiles.find(Path(location).expanduser().resolve())
        except (ModelFilesError, OSError) as exc:
            raise SourceError(str(exc)) from exc
        self._hashes: dict[str, str] = {}  # by stamp: within one build the files are read for it once

    @property
    def text(self) -> str:
        """The source with the absolute path."""
        return f"{self.kind}:{self._model.path}"

    @property
    def name(self) -> str:
        """The name of the file without its suffix, or of the folder."""
        return self._model.name

    def stamp(self) -> str:
        """Return what the files look like now."""
        return stamp_model(self._model)

    def sha256(self, progress: Progress) -> str:
        """Hash the files as they are now."""
        stamp = self.stamp()
        if stamp not in self._hashes:
            self._hashes[stamp] = hash_model(self._model, progress)
        return self._hashes[stamp]

    def revision(self) -> str | None:
        """There are no commits."""
        return None

    def download_bytes(self) -> int:
        """Nothing is downloaded."""
        return 0

    def fetch(self, scratch: Path, progress: Progress) -> FetchedModel:
        """Return the files where they are; nothing is copied."""
        return FetchedModel(self._model)


class GgufFileSource(LocalSource):
    """One GGUF file, or all parts of a split one by the name of any."""

    kind = "gguf"


class FolderSource(LocalSource):
    """A folder with one model."""

    kind = "folder"
