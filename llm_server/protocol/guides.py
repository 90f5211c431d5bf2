"""The fields that constrain the output, under OpenAI's name and under those of other open servers, to one Guide."""

import json
from collections.abc import Callable, Mapping

from engines.contract import Guide, GuideKind
from llm_server.errors import InvalidBodyError
from llm_server.protocol.sampling import RequestBody


class GuideFields(RequestBody):
    """`response_format` is OpenAI's; `structured_outputs` and `guided_*` are vLLM's, new and old."""

    response_format: object = None
    structured_outputs: object = None
    guided_json: object = None
    guided_regex: object = None
    guided_choice: object = None
    guided_grammar: object = None

    def guide(self) -> Guide | None:
        """Return the one constraint of the request, None without any. Raises InvalidBodyError."""
        guides = [guide for name, read in _READERS.items() if (guide := read(getattr(self, name), name)) is not None]
        if len(guides) > 1:
            raise InvalidBodyError("a request can have one constraint on its output, not several", "response_format")
        return guides[0] if guides else None

    @property
    def guide_param(self) -> str:
        """The first field that holds a constraint."""
        return next((name for name in _READERS if getattr(self, name) is not None), "response_format")


def _response_format(value: object, param: str) -> Guide | None:
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return Guide(GuideKind.JSON_OBJECT, '{"type": "object"}')
    if kind != "json_schema" or not isinstance(value, Mapping):
        raise InvalidBodyError("response_format.type must be one of 'text', 'json_object', 'json_schema'", param)
    wrapper = value.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
    if not isinstance(schema, Mapping):
        raise InvalidBodyError("response_format.json_schema must be an object with a 'schema' that is an object", param)
    return Guide(GuideKind.JSON_SCHEMA, json.dumps(schema))


def _json_schema(value: object, param: str) -> Guide | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Guide(GuideKind.JSON_SCHEMA, value)
    if not isinstance(value, Mapping):
        raise InvalidBodyError(f"{param} must be a JSON schema", param)
    return Guide(GuideKind.JSON_SCHEMA, json.dumps(value))


def _json_object(value: object, param: str) -> Guide | None:
    return Guide(GuideKind.JSON_OBJECT, '{"type": "object"}') if value is True else None


def _regex(value: object, param: str) -> Guide | None:
    return _text(GuideKind.REGEX, value, param)


def _grammar(value: object, param: str) -> Guide | None:
    return _text(GuideKind.GRAMMAR, value, param)


def _text(kind: GuideKind, value: object, param: str) -> Guide | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidBodyError(f"{param} must be a text that is not empty", param)
    return Guide(kind, value)


def _choice(value: object, param: str) -> Guide | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(choice, str) and choice for choice in value):
        raise InvalidBodyError(f"{param} must be a list of texts that are not empty", param)
    return Guide(GuideKind.CHOICE, json.dumps(value))


def _structured_outputs(value: object, param: str) -> Guide | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidBodyError(f"{param} must be an object", param)
    guides = [
        guide for name, read in _STRUCTURED.items() if (guide := read(value.get(name), f"{param}.{name}")) is not None
    ]
    if len(guides) != 1:
        raise InvalidBodyError(f"{param} must have exactly one of {', '.join(_STRUCTURED)}", param)
    return guides[0]


_Reader = Callable[[object, str], Guide | None]
_STRUCTURED: Mapping[str, _Reader] = {
    "json": _json_schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
}
_READERS: Mapping[str, _Reader] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _json_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
