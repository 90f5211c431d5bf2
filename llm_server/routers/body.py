"""Reading a JSON body, strictly: within the limit, in UTF-8, without NaN, Infinity or half a surrogate pair."""

from collections.abc import Mapping
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from llm_server.errors import BodyTooLargeError, ClientGoneError, InvalidBodyError

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, model: type[Body], max_bytes: int) -> tuple[Body, int]:
    """Return the checked body and its size in bytes.

    Raises BodyTooLargeError, InvalidBodyError, and pydantic's ValidationError.
    """
    raw = await _read_limited(request, max_bytes)
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as exc:
        raise InvalidBodyError(f"the body is not valid JSON: {exc}") from exc
    if not isinstance(data, dict):
        raise InvalidBodyError("the body must be a JSON object")
    return model.model_validate(data), len(raw)


async def _read_limited(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect as exc:
        raise ClientGoneError from exc
    return b"".join(chunks)


def body_schema(model: type[BaseModel]) -> dict[str, object]:
    """Return the part of an OpenAPI operation that describes a body read by `read_json`."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(node: object, definitions: Mapping[str, object]) -> object:
    """A schema with its references replaced by what they refer to: OpenAPI looks for them elsewhere."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    return {key: _inlined(value, definitions) for key, value in node.items()}


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {max_bytes} bytes")
