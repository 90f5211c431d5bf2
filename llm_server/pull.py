"""From a model's name or source to an engine folder that is ready to be served.

Whatever happens on the way (a second process pulling the same model, a kill, a full disk), the folder is either whole
under its final name or not there: it is built in a sibling folder, under a lock that ends with its holder.
"""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.folder import (
    EngineFolder,
    EngineFolderError,
    remove_stale_folders,
    scratch_folder,
    sha256_of,
    staged_folder,
)
from engines.progress import Phase, Progress, silent
from llm_server import __version__, paths
from llm_server.sources import Source, SourceError, parse_source
from llm_server.sources.catalog import CATALOG

BUILDER = "openvino-gguf-2"  # raise the number when the builder makes other folders than before


class PullError(Exception):
    """A model could not be made into an engine folder; the message says why in one line."""

    code = "pull_failed"


def pull(model: str, home: Path, progress: Progress = silent) -> Path:
    """Return the engine folder of a model below `home`, fetching and building it unless a valid one is there.

    `model` is a name of the catalogue or a source (llm_server.sources). Raises PullError.
    """
    try:
        source = parse_source(CATALOG[model].source if model in CATALOG else model)
        final = paths.engines(home) / _engine_name(model, source)
        return _pull_source(source, final, progress)
    except SourceError as exc:
        raise PullError(str(exc)) from exc
    except OSError as exc:
        raise PullError(f"cannot build an engine folder below {home}: {exc}") from exc


def _engine_name(model: str, source: Source) -> str:
    for name, entry in CATALOG.items():
        if model == name or source.text == entry.source:
            return name
    return re.sub(r"[^a-z0-9._-]+", "-", Path(source.file_name).stem.lower()).strip("-.") or "model"


def _pull_source(source: Source, final: Path, progress: Progress) -> Path:
    expected_sha256 = source.expected_sha256(progress)
    if _is_current(final, source, expected_sha256):
        return final
    with _lock(final, progress):
        if not _is_current(final, source, expected_sha256):  # another process may have built it meanwhile
            remove_stale_folders(final)
            _build(source, final, expected_sha256, progress)
    return final


def _is_current(final: Path, source: Source, expected_sha256: str | None) -> bool:
    try:
        description = EngineFolder.load(final).description
    except EngineFolderError:
        return False
    if description.source != source.text:
        raise PullError(f"{final} was built from {description.source}; remove it or rename the file {source.file_name}")
    return description.builder == BUILDER and expected_sha256 in (None, description.source_sha256)


def _build(source: Source, final: Path, expected_sha256: str | None, progress: Progress) -> None:
    # imported here: a server that finds its engine folder needs neither gguf nor the converter
    from engines.openvino.builder import BuildError, build_engine
    from engines.openvino.gguf_model import GgufError

    with scratch_folder(final) as scratch, staged_folder(final) as staging:
        file = source.fetch(scratch, progress)
        try:
            build_engine(
                file,
                staging,
                source=source.text,
                source_sha256=expected_sha256 or sha256_of(file),
                builder=BUILDER,
                versions={"llm-server": __version__},
                progress=progress,
            )
        except (BuildError, GgufError) as exc:
            raise PullError(str(exc)) from exc


@contextmanager
def _lock(final: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of one engine folder among all processes; the system releases it when its holder dies."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with (final.parent / f".{final.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(Phase.WAIT, 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
