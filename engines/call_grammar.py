"""A guide of kind `call_format` to a Lark grammar: tool calls in the family's own notation, arguments by schema.

The source is a JSON object:

- `format`: how calls are written: begin CALL separator CALL ... end, where a CALL is before_name NAME
  before_arguments ARGUMENTS after_arguments; `{index}` in before_arguments is the call's number. Arguments are a JSON
  object, unless `layout` says that each is written as before_key KEY before_value VALUE after_value;
- `tools`: the functions that may be called, each with `name` and `parameters` (a JSON schema);
- `max_calls`: 1, or null for any number from 1;
- `preamble`: free text goes on until this text has come, and the calls begin behind it; "" for at once.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engines.errors import UnsupportedFeatureError

Json = Mapping[str, Any]
Literal = Callable[[str], str]
"""Writes a text as Lark, control tokens as the tokens they are."""

INDEX = "{index}"
ANY_TEXT = r"/(.|\n)*/"


def call_grammar(source: Json, literal: Literal, json_options: Json) -> str:
    """Return the grammar of a call or several. Raises ValueError, KeyError or UnsupportedFeatureError."""
    shape = source["format"]
    calls = [f"call_{index}" for index in range(len(source["tools"]))]
    separator = literal(shape["separator"])
    more = "" if source["max_calls"] == 1 else f" ({separator} call)*"
    start = " ".join(filter(None, [literal(shape["begin"]), f"call{more}", literal(shape["end"])]))
    rules = [f"start: preamble {start}" if source["preamble"] else f"start: {start}"]
    if source["preamble"]:
        rules.append(f"preamble[suffix={json.dumps(source['preamble'])}]: {ANY_TEXT}")
    rules.append(f"call: {' | '.join(calls)}")
    for name, tool in zip(calls, source["tools"], strict=True):
        rules += _call(name, tool, shape, literal, json_options)
    return "\n".join(rules)


def _call(rule: str, tool: Json, shape: Json, literal: Literal, json_options: Json) -> Iterator[str]:
    schema = _closed(tool.get("parameters") or {"type": "object"})
    before, numbered, rest = shape["before_arguments"].partition(INDEX)
    parts = [literal(shape["before_name"] + tool["name"] + before)]
    if numbered:
        parts += ["/[0-9]{1,4}/", literal(rest)]
    parts += [f"{rule}_arguments", literal(shape["after_arguments"])]
    yield f"{rule}: {' '.join(filter(None, parts))}"
    if shape["layout"] is None:
        yield f"{rule}_arguments: {_json(schema, json_options)}"
    else:
        yield from _laid_out(f"{rule}_arguments", schema, shape["layout"], literal, json_options)


def _laid_out(rule: str, schema: Json, layout: Json, literal: Literal, json_options: Json) -> Iterator[str]:
    """Arguments one by one in the order of the schema, those that are required and any of the others."""
    if layout["values"] != "text" or layout["separator"]:
        raise UnsupportedFeatureError("calls in this model's notation cannot be enforced", "tool_choice")
    properties: Json = schema.get("properties", {})
    required = set(schema.get("required", ()))
    definitions = schema.get("$defs") or schema.get("definitions")
    names = []
    for index, (key, value) in enumerate(properties.items()):
        name = f"{rule}_{index}"
        names.append(name if key in required else f"{name}?")
        opening = literal(layout["before_key"] + key + layout["before_value"])
        yield f"{name}: {opening} {name}_value"
        if _is_text(value):
            yield f"{name}_value[suffix={json.dumps(layout['after_value'])}]: {ANY_TEXT}"
        else:
            nested = {**value, "$defs": definitions} if definitions else value
            yield f"{name}_value: {_json(nested, json_options)} {literal(layout['after_value'])}"
    yield f"{rule}: {' '.join(names)}" if names else f'{rule}: ""'


def _is_text(schema: Json) -> bool:
    """Whether any text will do: choices and patterns are not free text."""
    return schema.get("type") == "string" and not {"enum", "const", "pattern", "format"} & set(schema)


def _closed(schema: Json) -> Json:
    """Only the parameters that are declared, where the schema does not speak of others."""
    if schema.get("properties") and "additionalProperties" not in schema:
        return {**schema, "additionalProperties": False}
    return schema


def _json(schema: Json, options: Json) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def lark_literal(text: str, control_tokens: Mapping[str, int]) -> str:
    """Write a text as Lark: control tokens in it as `<[id]>`, the rest in quotes; "" for nothing."""
    if not text:
        return ""
    names = "|".join(map(re.escape, sorted(control_tokens, key=len, reverse=True)))
    pieces = re.split(f"({names})", text) if names else [text]
    return " ".join(
        f"<[{control_tokens[piece]}]>" if piece in control_tokens else json.dumps(piece, ensure_ascii=False)
        for piece in pieces
        if piece
    )
