"""How a family writes calls, as data.

From it histories are written, and engines make the grammar that constrains a call, so that what is constrained is
what is parsed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stylers.chat import ToolCall


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """Arguments that are no JSON: before_key KEY before_value VALUE after_value for each, separator between them.

    values: `text` writes strings as they are and anything else as JSON; `python` and `gemma` write literals.
    """

    before_key: str
    before_value: str
    after_value: str
    separator: str = ""
    values: Literal["text", "python", "gemma"] = "text"

    def write(self, arguments: Mapping[str, object]) -> str:
        """Write the arguments of one call."""
        write = {"text": _as_text, "python": repr, "gemma": gemma_literal}[self.values]
        return self.separator.join(
            f"{self.before_key}{key}{self.before_value}{write(value)}{self.after_value}"
            for key, value in arguments.items()
        )


@dataclass(frozen=True, slots=True)
class CallFormat:
    """begin CALL separator CALL ... end, where a CALL is before_name NAME before_arguments ARGUMENTS after_arguments.

    `{index}` in before_arguments is the number of the call, from 0. Arguments are a JSON object unless they have a
    layout of their own. parallel: the model may write more than one call.
    """

    before_name: str
    before_arguments: str
    after_arguments: str = ""
    begin: str = ""
    separator: str = ""
    end: str = ""
    layout: ParameterLayout | None = None
    parallel: bool = True

    def write(self, calls: Iterable[ToolCall]) -> str:
        """Write calls as the model would."""
        return f"{self.begin}{self.separator.join(map(self._call, calls, range(1_000_000)))}{self.end}"

    def _call(self, call: ToolCall, index: int) -> str:
        before_arguments = self.before_arguments.replace("{index}", str(index))
        return f"{self.before_name}{call.name}{before_arguments}{self._arguments(call)}{self.after_arguments}"

    def _arguments(self, call: ToolCall) -> str:
        arguments = call.arguments_object()
        if self.layout is not None and isinstance(arguments, Mapping):
            return self.layout.write(arguments)
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def gemma_literal(value: object) -> str:
    """Write a value as Gemma 4 does: strings between marks, keys as bare words in alphabetical order."""
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{gemma_literal(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_literal, value)) + "]"
    return json.dumps(value)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
