"""What type the tool's schema gives a value that the model wrote without quotes."""

import ast
import json
from collections.abc import Callable, Mapping

from stylers.chat import ToolDefinition

MAX_DEPTH = 16  # of references and alternatives; deeper ones count as text
TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def parameter_types(tool: ToolDefinition, key: str) -> frozenset[str]:
    """The JSON types that a parameter may have; text where the schema does not say."""
    return _types(tool.properties.get(key), tool.parameters, MAX_DEPTH) or frozenset(("string",))


def _types(schema: object, root: Mapping[str, object], depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    if isinstance(reference := schema.get("$ref"), str):
        return _types(_referred(reference, root), root, depth - 1)
    found = _named(schema.get("type")) | frozenset(_type_of(value) for value in _listed(schema.get("enum")))
    if "const" in schema:
        found |= {_type_of(schema["const"])}
    for key in ("anyOf", "oneOf", "allOf"):
        for alternative in _listed(schema.get(key)):
            found |= _types(alternative, root, depth - 1)
    return found | ({"null"} if schema.get("nullable") is True else frozenset())


def _named(types: object) -> frozenset[str]:
    return frozenset((types,)) if isinstance(types, str) else frozenset(map(str, _listed(types)))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _type_of(value: object) -> str:
    return TYPE_NAMES.get(type(value), "null")


def _referred(reference: str, root: object) -> object:
    for step in reference.removeprefix("#/").split("/"):
        root = root.get(step) if isinstance(root, Mapping) else None
    return root


def typed_json(text: str, types: frozenset[str]) -> str:
    """Write a value as JSON: as the first of its types that its text fits, else as text."""
    for name, read in READERS.items():
        if name in types:
            try:
                return json.dumps(read(text.strip()), ensure_ascii=False, allow_nan=False)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                continue
    return json.dumps(text, ensure_ascii=False)


def _null(text: str) -> None:
    if text.lower() not in ("null", "none"):
        raise ValueError(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse(text)


def _refuse(text: str) -> bool:
    raise ValueError(text)


def _number(text: str) -> int | float:
    value = json.loads(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(text)
    return value


def _integer(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdecimal() else _number(text)


def _structure(kind: type) -> Callable[[str], object]:
    def read(text: str) -> object:
        try:
            value = json.loads(text)
        except ValueError:
            value = ast.literal_eval(text)  # templates print what is no string as Python does
        if not isinstance(value, kind):
            raise ValueError(text)
        return value

    return read


READERS: Mapping[str, Callable[[str], object]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _structure(list),
    "object": _structure(dict),
}
