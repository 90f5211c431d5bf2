"""Which models are known by name, and which of them are here."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.folder import EngineFolder, EngineFolderError
from llm_server import paths
from llm_server.sources.catalog import CATALOG


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of `llm-server models`."""

    name: str
    state: str
    engine: str = "-"
    context: str = "-"
    source: str = "-"


def list_models(home: Path) -> Iterator[ModelRow]:
    """Yield the engine folders below `home`, then the catalogue's models that are not among them."""
    folder = paths.engines(home)
    present = (
        sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".") if folder.is_dir() else []
    )
    yield from map(_row, present)
    names = {path.name for path in present}
    yield from (
        ModelRow(name, "not here yet", source=model.source) for name, model in CATALOG.items() if name not in names
    )


def _row(path: Path) -> ModelRow:
    try:
        description = EngineFolder.load(path).description
    except EngineFolderError as exc:
        return ModelRow(path.name, f"broken: {exc}")
    engine = f"{description.engine} {description.precision}"
    return ModelRow(path.name, "ready", engine, str(description.max_sequence_length), description.source)
