"""Which models are known by name, and which of them are here."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from engines.folder import EngineFolder, EngineFolderError
from llm_server import paths
from llm_server.families import styler_name
from llm_server.sources.catalog import CATALOG


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of `llm-server models`."""

    model: str
    state: str
    engine: str = "-"
    precision: str = "-"
    size: str = "-"
    context: str = "-"
    styler: str = "-"
    source: str = "-"


TITLES = tuple(column.name for column in fields(ModelRow))


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
        folder = EngineFolder.load(path)
    except EngineFolderError as exc:
        return ModelRow(path.name, f"broken: {exc}")
    description = folder.description
    return ModelRow(
        path.name,
        "ready",
        description.engine,
        description.precision,
        f"{folder.size_bytes / 1e6:.1f} MB",
        str(description.max_sequence_length),
        styler_name(folder, folder.chat_template),
        description.source,
    )
