"""The stylers by name. Each family's module lists its rows; this one table holds them all."""

from stylers.base import Styler
from stylers.errors import StylerError

_STYLERS: dict[str, Styler] = {}
_ALIASES: dict[str, str] = {}


def register_styler(*rows: Styler) -> None:
    """Make rows known by their names and aliases."""
    for row in rows:
        for name in (row.name, *row.aliases):
            if name in _STYLERS or name in _ALIASES:
                raise ValueError(f"a styler named {name!r} is registered already")
        _STYLERS[row.name] = row
        _ALIASES.update(dict.fromkeys(row.aliases, row.name))


def names() -> tuple[str, ...]:
    """The names of all stylers, without aliases, in alphabetical order."""
    return tuple(sorted(_STYLERS))


def get(name: str) -> Styler:
    """Return a styler by its name or an alias, unbound. Raises StylerError that lists the known ones."""
    styler = _STYLERS.get(_ALIASES.get(name, name))
    if styler is None:
        raise StylerError(f"there is no styler named {name!r}; known are {', '.join(names())}")
    return styler
