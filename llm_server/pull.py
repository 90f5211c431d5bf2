"""From a model's name or source to an engine folder that is ready to be served.

Whatever happens on the way (a second process pulling the same model, a kill, a full disk), the folder is either whole
under its final name or not there: it is built in a sibling folder, under a lock that ends with its holder.
"""

import fcntl
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from engines.build_options import BuildMachine, EngineOptions
from engines.building import BUILDERS, BuildError, BuildRequest, discard
from engines.folder import (
    DESCRIPTION_FILE,
    EngineDescription,
    EngineFolder,
    EngineFolderError,
    download_folder,
    remove_stale_folders,
    restamp,
    scratch_folder,
    staged_folder,
)
from engines.progress import Phase, Progress, silent
from llm_server import __version__, paths
from llm_server.sources import Source, SourceError, parse_source
from llm_server.sources.catalog import CATALOG
from llm_server.sources.hashing import hash_model

log = logging.getLogger(__name__)

ENGINE = "openvino"
EXACT = "f16"
TENSORRT = "trtllm"


class PullError(Exception):
    """A model could not be made into an engine folder; the message says why in one line."""

    code = "pull_failed"


@dataclass(frozen=True, slots=True)
class Plan:
    """An engine folder that is wanted: what it is made from, how, and where it goes.

    OpenVINO's are made in a precision, TensorRT's with options, and on a machine that has the vendor's tools.
    """

    source: Source
    precision: str
    final: Path
    convert_env: Path
    engine: str = ENGINE
    options: EngineOptions = field(default_factory=EngineOptions)
    machine: BuildMachine = field(default_factory=BuildMachine)

    def outdated(self, progress: Progress = silent) -> str | None:
        """Say in a few words why the folder must be built, None if it can be served as it is.

        Raises PullError where the folder is another model's.
        """
        try:
            description = EngineFolder.load(self.final).description
        except EngineFolderError as exc:
            return str(exc) if self.final.exists() else "it is not here yet"
        if description.source != self.source.text:
            raise PullError(
                f"{self.final} was built from {description.source}; remove it (llm-server rm) or build with --out"
            )
        if description.engine != self.engine:
            raise PullError(f"{self.final} is for the engine {description.engine}; build with another --out")
        if not BUILDERS[self.engine].made(description.builder):
            return f"it was made by an older builder, {description.builder}"
        if not _has_precision(description, self.precision):
            return f"its weights are {description.precision}"
        if description.build_options != self._build_options:
            return "it was built with other options"
        return None if self._is_unchanged(description, progress) else "its source has changed"

    @property
    def _build_options(self) -> Mapping[str, object]:
        """What engine.json keeps of the options, where the engine has any."""
        return self.options.as_document() if self.engine == TENSORRT else {}

    def _is_unchanged(self, description: EngineDescription, progress: Progress) -> bool:
        """Compare the commit; or what local files look like, and only if that differs read and hash them."""
        if description.source_revision is not None:
            return self.source.revision() in (None, description.source_revision)
        stamp = self.source.stamp()
        if stamp is not None and stamp == description.source_stamp:
            return True
        return self.source.sha256(progress) in (None, description.source_sha256)


def pull(model: str, home: Path, progress: Progress = silent) -> Path:
    """Return the engine folder of a model, fetching and building it unless a valid one is there.

    `model` is the name of a model of the catalogue or of an engine folder below `home`, the path of an engine folder,
    or a source (llm_server.sources). A folder that is named is taken as it stands. Raises PullError.
    """
    # a model of the catalogue is kept up to date by its source
    folder = None if model in CATALOG else find_folder(model, home)
    if folder is None:
        return carry_out(make_plan(model, home), progress)
    description = _read(folder).description
    builder = BUILDERS.get(description.engine)
    if (
        builder is None
        or description.engine != ENGINE
        or folder.parent != paths.engines(home)
        or builder.made(description.builder)
    ):
        return folder
    precision = EXACT if description.precision_loss is None else description.precision
    return carry_out(make_plan(description.source, home, precision=precision, out=folder), progress)


def find_folder(model: str, home: Path) -> Path | None:
    """Look for an engine folder with this name or path."""
    by_name = [paths.engines(home) / model] if Path(model).name == model else []
    candidates = (*by_name, Path(model).expanduser())
    return next((path for path in candidates if (path / DESCRIPTION_FILE).is_file()), None)


def _read(folder: Path) -> EngineFolder:
    try:
        return EngineFolder.load(folder)
    except EngineFolderError as exc:
        raise PullError(str(exc)) from exc


def make_plan(model: str, home: Path, *, precision: str = EXACT, out: Path | None = None) -> Plan:
    """Decide what to build where, without building it. Raises PullError."""
    known = BUILDERS[ENGINE].precisions
    if precision not in known:
        raise PullError(f"precision {precision!r} is not one of {', '.join(known)}")
    source = _parse(model, home)
    final = _final(_engine_name(model, source) + ("" if precision == EXACT else f"-{precision}"), home, out)
    return Plan(source, precision, final, paths.convert_env(home))


def make_tensorrt_plan(
    model: str, home: Path, options: EngineOptions, machine: BuildMachine, *, out: Path | None = None
) -> Plan:
    """Decide which TensorRT engine to build where, without building it. Raises PullError."""
    source = _parse(model, home)
    if not source.text.startswith(("folder:", "hf:")):
        raise PullError(
            f"{source.text} is no Hugging Face checkpoint; a TensorRT engine is built from a folder or hf:org/name"
        )
    parts = [_engine_name(model, source), TENSORRT]
    if options.quantization != "none":
        parts.append(options.quantization)
    for name, size in (("tp", options.tensor_parallel_size), ("pp", options.pipeline_parallel_size)):
        if size > 1:
            parts.append(f"{name}{size}")
    final = _final("-".join(parts), home, out)
    return Plan(source, EXACT, final, paths.convert_env(home), TENSORRT, options, machine)


def _parse(model: str, home: Path) -> Source:
    try:
        return parse_source(CATALOG[model].source if model in CATALOG else model)
    except SourceError as exc:
        hint = _known_names(model, home) if re.fullmatch(r"[\w.-]+", model) and not model.endswith(".gguf") else ""
        raise PullError(f"{exc}{hint}") from exc


def _known_names(model: str, home: Path) -> str:
    """Say which models have a name, the one first that may have been meant."""
    here = (file.parent.name for file in paths.engines(home).glob(f"*/{DESCRIPTION_FILE}"))
    names = sorted({*CATALOG, *(name for name in here if name[0] != ".")})
    meant = get_close_matches(model.lower(), names, n=1)
    return f"; {f'did you mean {meant[0]}? K' if meant else 'k'}nown by name are {', '.join(names)}"


def _final(name: str, home: Path, out: Path | None) -> Path:
    """Where an engine folder goes: below `home` unless another place is named, which must be one or be empty."""
    if out is None:
        return paths.engines(home) / name
    if out.exists() and not _may_replace(out):
        raise PullError(f"{out} is there and is not an engine folder; it would be replaced")
    return out.expanduser().absolute()


def carry_out(plan: Plan, progress: Progress = silent, show: Callable[[str], None] = discard) -> Path:
    """Return the engine folder of a plan, building it if need be. `show` takes what tools print. Raises PullError."""
    try:
        if plan.outdated(progress) is None:
            _remember_stamp(plan, progress)
            return plan.final
        with locked(plan.final, progress):
            if plan.outdated(progress) is not None:  # another process may have built it meanwhile
                remove_stale_folders(plan.final)
                _build(plan, progress, show)
    except (SourceError, BuildError) as exc:
        raise PullError(str(exc)) from exc
    except OSError as exc:
        raise PullError(f"cannot build an engine folder below {plan.final.parent}: {exc}") from exc
    return plan.final


def _remember_stamp(plan: Plan, progress: Progress) -> None:
    """Note how the source of a folder that is up to date looks now: then the next start need not read it again."""
    stamp = plan.source.stamp()
    if stamp is None or stamp == EngineFolder.load(plan.final).description.source_stamp:
        return
    try:
        with locked(plan.final, progress):
            if plan.outdated(progress) is None and plan.source.stamp() == stamp:
                restamp(plan.final, stamp)
    except OSError as exc:
        log.debug("%s is served as it is: %s", plan.final, exc)  # a cache that cannot be written


def remove(name: str, home: Path) -> int:
    """Remove the engine folder with this name and return the bytes it had. Raises PullError."""
    final = paths.engines(home) / name
    if not name or Path(name).name != name or name.startswith(".") or not final.is_dir():
        raise PullError(f"there is no model {name!r} here; `llm-server models` lists them")
    try:
        with locked(final, silent), download_folder(final), scratch_folder(final) as scratch:
            # at once: what is left of a killed removal is never taken for a model
            aside = final.replace(scratch / name)
            return sum(file.stat().st_size for file in aside.rglob("*") if file.is_file())
    except OSError as exc:
        raise PullError(f"cannot remove {final}: {exc}") from exc


def _engine_name(model: str, source: Source) -> str:
    for name, entry in CATALOG.items():
        if model == name or source.text == entry.source:
            return name
    name = re.sub(r"[^a-z0-9._-]+", "-", source.name.lower()).strip("-.") or "model"
    kind, _, _ = source.text.partition(":")
    return f"{name}-{kind}" if name in CATALOG else name  # the catalogue's names stay its own


def _may_replace(out: Path) -> bool:
    return out.is_dir() and (not any(out.iterdir()) or (out / DESCRIPTION_FILE).is_file())


def _has_precision(description: EngineDescription, precision: str) -> bool:
    """An imported IR keeps its precision, whatever it is; a lowered one has a measured loss."""
    if precision == EXACT:
        return description.precision_loss is None
    return description.precision == precision


def _build(plan: Plan, progress: Progress, show: Callable[[str], None]) -> None:
    stamp = plan.source.stamp()  # before the files are read: if they change meanwhile, the next start sees it
    with download_folder(plan.final) as downloads, staged_folder(plan.final) as staging:
        fetched = plan.source.fetch(downloads, progress)
        request = BuildRequest(
            model=fetched.files,
            name=plan.source.name,
            source=plan.source.text,
            source_sha256=plan.source.sha256(progress) or hash_model(fetched.files, progress),
            precision=plan.precision,
            source_stamp=stamp,
            source_revision=fetched.revision,
            convert_env=plan.convert_env,
            versions={"llm-server": __version__},
            engine_options=plan.options,
            machine=plan.machine,
            show=show,
        )
        BUILDERS[plan.engine].build(request, staging, progress)


@contextmanager
def locked(final: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of one engine folder among all processes; the system releases it when its holder dies."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with (final.parent / f".{final.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(Phase.WAIT, 0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
