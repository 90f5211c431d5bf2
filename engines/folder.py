"""The engine folder: everything one engine needs to serve one model, described by its engine.json.

A folder appears under its final name complete or not at all (`staged_folder`), and `EngineFolder.load` trusts nothing
but engine.json: each file named there must be present with the size and, when cheap or asked for, the sha256 it had
when it was written.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from engines.model_files import decoder_irs, weights_name

FORMAT_VERSION = 1
DESCRIPTION_FILE = "engine.json"
TOKENIZER_FILE = "tokenizer.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
GENERATION_CONFIG_FILE = "generation_config.json"
REQUIRED_FILES: Mapping[str, tuple[str, ...]] = {
    "openvino": (TOKENIZER_FILE, GENERATION_CONFIG_FILE),  # and graphs with their weights
    "trtllm": ("trtllm.json", TOKENIZER_FILE, GENERATION_CONFIG_FILE),
}
_ALWAYS_HASHED_BYTES = 16 * 2**20  # hashing this much takes about 10 ms


class EngineFolderError(Exception):
    """An engine folder is missing, incomplete or not what its engine.json says."""

    code = "engine_folder_invalid"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file of the folder was when it was written."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PrecisionLoss:
    """What a lower precision of the weights changed, measured on a text of `num_tokens` tokens.

    `top1_agreement` is the share of places where the likeliest token stayed the same, `mean_abs_dlogprob` the mean
    distance of the log-probabilities of the tokens that were the five likeliest.
    """

    top1_agreement: float
    mean_abs_dlogprob: float
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model says about itself, and which packages found it out (`versions`).

    `end_token_ids` has the model's own end token first. `prompt_starts_with_bos` is about raw prompts: a chat template
    writes BOS itself. `model_config` holds what the model's own configuration says about its family.
    """

    model_name: str
    architecture: str
    precision: str
    vocab_size: int
    max_sequence_length: int
    end_token_ids: tuple[int, ...]
    eos_text: str
    bos_token_id: int | None
    bos_text: str | None
    prompt_starts_with_bos: bool
    model_config: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def by_name(self) -> dict[str, Any]:
        """Return the facts by their names, for the description that states them among others."""
        return {fact.name: getattr(self, fact.name) for fact in fields(ModelFacts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription(ModelFacts):
    """The facts engine.json states about the model and how the folder came to be.

    `builder` names the code that built the folder: a folder of another builder is built anew. `source` is the model
    source as the user wrote it, `source_sha256` the hash of the model files it led to, `source_stamp` what these files
    looked like where they are local (their paths, sizes and times), and `source_revision` the commit they came from.
    `styler` names the model's family where the builder knows better. `build_options` are those of an engine that is
    built for one batch size, number of GPUs and so on.
    """

    engine: str
    source: str
    source_sha256: str
    builder: str
    styler: str | None = None
    source_stamp: str | None = None
    source_revision: str | None = None
    precision_loss: PrecisionLoss | None = None
    build_options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineFolder:
    """A checked engine folder on disk."""

    path: Path
    description: EngineDescription
    files: Mapping[str, FileRecord]

    @classmethod
    def load(cls, path: Path, *, verify: bool = False) -> "EngineFolder":
        """Load and check the folder: every size, the sha256 of small files, and of all files with `verify`.

        Raises EngineFolderError naming the file that is missing, truncated or changed.
        """
        description, files = _read_description(path)
        for name, record in files.items():
            _check_file(path / name, record, hashed=verify or record.size_bytes <= _ALWAYS_HASHED_BYTES)
        return cls(path, description, files)

    @property
    def size_bytes(self) -> int:
        """Size of all files the description names."""
        return sum(record.size_bytes for record in self.files.values())

    @property
    def model_path(self) -> Path:
        """The OpenVINO IR with the logits; its weights, and the graphs it needs, lie beside it."""
        return self.path / decoder_irs(self.files)[0]

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer, in the JSON of the `tokenizers` package."""
        return self.path / TOKENIZER_FILE

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja chat template, None where it has none."""
        if CHAT_TEMPLATE_FILE not in self.files:
            return None
        return (self.path / CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")

    def generation_config(self) -> dict[str, float | int]:
        """Read the model's own sampling defaults, by the names of SamplingParams."""
        text = (self.path / GENERATION_CONFIG_FILE).read_text(encoding="utf-8")
        defaults: dict[str, float | int] = json.loads(text)
        return defaults


def describe_folder(path: Path, description: EngineDescription) -> EngineFolder:
    """Write engine.json over the files that lie in `path`, flush all of them to disk and return the folder."""
    present = sorted(file for file in path.rglob("*") if file.is_file() and file.name != DESCRIPTION_FILE)
    files = {file.relative_to(path).as_posix(): _record(file) for file in present}
    _refuse_missing(path, description.engine, files)
    document = {"format_version": FORMAT_VERSION, **asdict(description)}
    document["files"] = {name: asdict(record) for name, record in files.items()}
    _write_document(path / DESCRIPTION_FILE, document)
    for file in path.rglob("*"):
        _sync(file)
    _sync(path)
    return EngineFolder(path, description, files)


def restamp(path: Path, source_stamp: str) -> None:
    """Note in the engine.json of a folder how its unchanged source looks now. The caller holds the folder's lock."""
    file = path / DESCRIPTION_FILE
    document = json.loads(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix=_scratch_prefix(path), dir=path.parent) as scratch:
        fresh = Path(scratch) / file.name
        _write_document(fresh, {**document, "source_stamp": source_stamp})
        _sync(fresh)
        fresh.replace(file)


@contextmanager
def scratch_folder(final: Path) -> Iterator[Path]:
    """Yield a fresh sibling of `final` that is gone when the block ends.

    A process killed in between leaves the sibling behind; `remove_stale_folders` deletes it.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_scratch_prefix(final), suffix=".partial", dir=final.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """Yield a fresh sibling of `final` that takes its place when the block ends, and vanishes when it raises."""
    with scratch_folder(final) as staging:
        yield staging
        staging.chmod(0o755)  # scratch folders are private; a served model may be read by another user
        _move_into_place(staging, final)


@contextmanager
def download_folder(final: Path) -> Iterator[Path]:
    """Yield a sibling of `final` that is gone when the block ends, but stays with what is in it if the block fails.

    The caller holds the lock that builders of `final` take.
    """
    folder = final.with_name(f".{final.name}.download")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        with suppress(OSError):  # nothing is there any more, or something that the next attempt goes on with
            folder.rmdir()


def remove_stale_folders(final: Path) -> None:
    """Delete what killed builds of `final` left behind. The caller holds the lock that builders of `final` take."""
    for stale in final.parent.iterdir():
        if stale.name.startswith(_scratch_prefix(final)):
            shutil.rmtree(stale, ignore_errors=True)


def _write_document(file: Path, document: Mapping[str, object]) -> None:
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _scratch_prefix(final: Path) -> str:
    return f".{final.name}~"  # not a dot: one engine's name may be another's with a dot and more behind it


def _move_into_place(staging: Path, final: Path) -> None:
    with scratch_folder(final) as aside:
        if final.exists():  # a folder cannot be renamed over a full one: the old one steps aside
            final.replace(aside)
        staging.replace(final)
    _sync(final.parent)


def _read_description(path: Path) -> tuple[EngineDescription, dict[str, FileRecord]]:
    file = path / DESCRIPTION_FILE
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        version = document["format_version"]
        if version != FORMAT_VERSION:
            raise EngineFolderError(f"{file} has format version {version}; this server reads {FORMAT_VERSION}")
        description = _parse_description(document)
        files = {name: FileRecord(**record) for name, record in document["files"].items()}
    except FileNotFoundError as exc:
        raise EngineFolderError(f"{path} is not an engine folder: {DESCRIPTION_FILE} is missing") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise EngineFolderError(f"{file} is not a valid engine description: {exc!r}") from exc
    except OSError as exc:
        raise EngineFolderError(f"{file} cannot be read: {exc.strerror}") from exc
    _refuse_missing(path, description.engine, files)
    return description, files


def _parse_description(document: Mapping[str, Any]) -> EngineDescription:
    values = {known.name: document[known.name] for known in fields(EngineDescription) if known.name in document}
    loss = document.get("precision_loss")
    return EngineDescription(
        **values
        | {"end_token_ids": tuple(values["end_token_ids"]), "precision_loss": PrecisionLoss(**loss) if loss else None}
    )


def _refuse_missing(path: Path, engine: str, files: Mapping[str, FileRecord]) -> None:
    required = REQUIRED_FILES.get(engine)
    if required is None:
        raise EngineFolderError(f"{path} is for the engine {engine!r}; known engines: {', '.join(REQUIRED_FILES)}")
    graphs = decoder_irs(files) if engine == "openvino" else ()
    missing = [name for name in (*graphs, *map(weights_name, graphs), *required) if name not in files]
    if missing:
        raise EngineFolderError(f"{path} has no {', '.join(missing)}")


def _check_file(file: Path, record: FileRecord, *, hashed: bool) -> None:
    if not file.is_file():
        raise EngineFolderError(f"{file} is missing")
    size_bytes = file.stat().st_size
    if size_bytes != record.size_bytes:
        raise EngineFolderError(f"{file} has {size_bytes} bytes instead of {record.size_bytes}")
    if hashed and sha256_of(file) != record.sha256:
        raise EngineFolderError(f"{file} has changed since the folder was built: its sha256 differs")


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _record(file: Path) -> FileRecord:
    return FileRecord(file.stat().st_size, sha256_of(file))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
