"""A model on the Hugging Face Hub: `hf:org/name`, `hf:org/name@revision`, `hf:org/name@revision#file.gguf`.

Endpoint, token and proxies are those that huggingface_hub reads from its own environment variables (HF_ENDPOINT,
HF_TOKEN). A revision is resolved to its commit once, all files are of that commit, and engine.json records it. What is
not part of a text model (pictures, pickles, other frameworks' weights) is not downloaded.
"""

import logging
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # it is documented there

from engines.model_files import ModelFiles, ModelFilesError, ModelFormat, gguf_part_names, gguf_stem, select_files
from engines.progress import Progress
from llm_server.sources import FetchedModel, SourceError
from llm_server.sources.hashing import check_download
from llm_server.sources.resuming import download, one_line
from llm_server.sources.watching import bytes_below, watched

log = logging.getLogger(__name__)

_LOCATION = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[^#@]+))?(#(?P<file>[^#]+\.gguf))?")
_COMMIT_MARK = ".commit"
_COMMIT_HASH = re.compile("[0-9a-f]{40}")
_LOOK_UP_TIMEOUT_S = 5.0  # a start waits so long for a hub that does not answer


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """A file of the repository; the hub knows the hash of large ones."""

    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit of a repository, with the files a model is read from, by their paths."""

    sha: str
    files: dict[str, _RemoteFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


class HubSource:
    """One model repository, or one GGUF file in it. Raises SourceError on another form of location.

    Nothing is asked of the network before `revision`, `download_bytes` or `fetch`. `endpoint` is the hub's own by
    default.
    """

    def __init__(self, location: str, *, endpoint: str | None = None) -> None:
        match = _LOCATION.fullmatch(location)
        if match is None:
            raise SourceError(f"{location!r} does not have the form org/name, org/name@revision or org/name#file.gguf")
        self._location = location
        self._repo, self._revision, self._file = match["repo"], match["revision"], match["file"]
        self._api = HfApi(endpoint=endpoint, library_name="llm-server")

    @property
    def text(self) -> str:
        """The source as it was written: a branch stays a branch."""
        return f"hf:{self._location}"

    @property
    def name(self) -> str:
        """The name of the repository without its owner, or of the file."""
        return gguf_stem(PurePosixPath(self._file).name) if self._file else self._repo.partition("/")[2]

    def stamp(self) -> str | None:
        """Nothing is local."""
        return None

    def sha256(self, progress: Progress) -> str | None:
        """Not known before the files are here."""
        return None

    def revision(self) -> str | None:
        """Return the commit, asking the hub unless one was named; a hub out of reach is logged."""
        return self._current_revision

    @cached_property
    def _current_revision(self) -> str | None:
        if self._revision is not None and _COMMIT_HASH.fullmatch(self._revision):
            return self._revision
        try:
            return self._commit.sha
        except SourceError as exc:
            log.warning("%s; a folder that was built of it is used as it is", exc)
            return None

    def model_format(self) -> ModelFormat:
        """Ask the hub which format the model has. Raises SourceError."""
        return ModelFormat.GGUF if self._file else select_files(self._commit.files)[0]

    def download_bytes(self) -> int:
        """Ask the hub for the sizes of the files."""
        return self._commit.size_bytes

    def fetch(self, scratch: Path, progress: Progress) -> FetchedModel:
        """Download the files of one commit into `scratch` and check them. Raises SourceError.

        What lies there of the same commit is not downloaded again.
        """
        commit = self._commit
        _keep_only(commit.sha, scratch)
        if shutil.disk_usage(scratch).free < commit.size_bytes - bytes_below(scratch):
            raise SourceError(f"{self.text} has {commit.size_bytes / 1e9:.1f} GB; the disk has less")
        with watched(scratch, commit.size_bytes, progress):
            paths = [self._download(name, file, commit.sha, scratch) for name, file in commit.files.items()]
        for path, file in zip(paths, commit.files.values(), strict=True):
            if file.sha256 is not None:
                check_download(path, file.sha256, progress)
        try:
            return FetchedModel(ModelFiles.find(paths[0] if self._file else scratch), revision=commit.sha)
        except ModelFilesError as exc:
            raise SourceError(f"{self.text} is no model: {exc}") from exc

    @cached_property
    def _commit(self) -> _Commit:
        try:
            info = self._api.model_info(
                self._repo, revision=self._revision, files_metadata=True, timeout=_LOOK_UP_TIMEOUT_S
            )
        except Exception as exc:  # the errors of the HTTP client below huggingface_hub differ from version to version
            raise SourceError(f"{self.text} cannot be found: {one_line(exc)}") from exc
        files = {
            entry.rfilename: _RemoteFile(entry.size or 0, entry.lfs.sha256 if entry.lfs else None)
            for entry in info.siblings or ()
        }
        return _Commit(info.sha or "", {name: files[name] for name in self._select(files)})

    def _select(self, files: dict[str, _RemoteFile]) -> list[str]:
        if self._file is None:
            try:
                return list(select_files(name for name in files if "/" not in name and "\\" not in name)[1])
            except ModelFilesError as exc:
                raise SourceError(f"{self.text} cannot be used: {exc}") from exc
        path = PurePosixPath(self._file)
        parts = [str(path.with_name(name)) for name in gguf_part_names(path.name)]
        missing = [part for part in parts if part not in files]
        if missing or ".." in path.parts or path.is_absolute():
            raise SourceError(f"{self.text} has no file {(missing or parts)[0]}")
        return parts

    def _download(self, name: str, remote: _RemoteFile, commit: str, scratch: Path) -> Path:
        file = scratch / name
        if file.is_file():
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        url = hf_hub_url(self._repo, name, revision=commit, endpoint=self._api.endpoint)
        headers = build_hf_headers(token=self._api.token, library_name="llm-server")
        try:
            download(url, file, size_bytes=remote.size_bytes or None, headers=headers)
        except Exception as exc:  # as above
            raise SourceError(f"{name} of {self.text} cannot be downloaded: {one_line(exc)}") from exc
        return file


def _keep_only(commit: str, scratch: Path) -> None:
    """Empty a folder of everything that is not of this commit."""
    mark = scratch / _COMMIT_MARK
    if not mark.is_file() or mark.read_text() != commit:
        for path in scratch.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        mark.write_text(commit)
