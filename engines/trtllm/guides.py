"""Guides for the llguidance backend of TensorRT-LLM, which compiles them when a request arrives.

A guide that does not compile would fail there, in early releases with the whole engine; so the same library compiles
it here first. Source of the forms: tensorrt_llm/_torch/pyexecutor/grammar_matcher.py, whose EBNF_GRAMMAR is Lark.
"""

import json

from engines.contract import Guide, GuideKind
from engines.guides import JSON_OPTIONS, GuideCompiler


def guide_arguments(guide: Guide, compiler: GuideCompiler) -> dict[str, str]:
    """Return the arguments of GuidedDecodingParams for a guide that `compiler` compiles."""
    if guide.kind is GuideKind.JSON_OBJECT:
        return {"json": _json_schema('{"type": "object"}')}
    if guide.kind is GuideKind.JSON_SCHEMA:
        return {"json": _json_schema(guide.source)}
    if guide.kind is GuideKind.REGEX:
        return {"regex": guide.source}
    return {"grammar": compiler.lark(guide)}


def _json_schema(source: str) -> str:
    """Bound the blanks between the tokens of JSON, for models that would write them without end."""
    schema = json.loads(source)
    if not isinstance(schema, dict):  # true and false are schemas as well
        return source
    return json.dumps({**schema, "x-guidance": {**schema.get("x-guidance", {}), **JSON_OPTIONS}})
