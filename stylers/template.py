"""A model's own chat template, rendered as `transformers` renders it, in a sandbox.

What templates may rely on (source: "Chat templates" in the documentation of transformers 4.57 and 5): trim_blocks and
lstrip_blocks; `break` and `continue`; `{% generation %}` blocks; a `tojson` filter that escapes no HTML and keeps
unicode; `raise_exception` and `strftime_now`. Templates come with model folders, so they are not trusted: they see
plain JSON values only, no attribute that begins with an underscore, and their output and loops are bounded. Whatever
goes wrong inside one is a StylerError.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from stylers.errors import StylerError

MAX_PROMPT_CHARS = 64 * 1024 * 1024  # twice the largest request body


class ChatTemplate:
    """One compiled template. Build it with `load_template`, which keeps it compiled."""

    def __init__(self, source: str) -> None:
        try:
            tree = _ENVIRONMENT.parse(source)
            self._template = _ENVIRONMENT.from_string(tree)
        except (jinja2.TemplateError, RecursionError) as exc:
            raise StylerError(f"the model's chat template cannot be compiled: {exc}") from exc
        self.source = source
        self.variables = frozenset(meta.find_undeclared_variables(tree))
        self._reads_parts: dict[tuple[str, bool], bool] = {}

    def render(self, variables: Mapping[str, object], now: datetime | None = None) -> str:
        """Render with `variables`, JSON values; the template's clock stands at `now`. Raises StylerError."""

        def strftime_now(pattern: str) -> str:
            return (now or datetime.now()).strftime(pattern)

        try:
            return _joined(self._template.generate({"strftime_now": strftime_now, **variables}))
        except StylerError:
            raise
        except jinja2.TemplateError as exc:
            raise StylerError(f"the model's chat template refuses this request: {exc.message}") from exc
        except Exception as exc:  # a template can raise whatever Python raises; none of it may end the server
            raise StylerError(f"the model's chat template cannot render this request: {exc}") from exc

    def reads_parts(self, role: str, several: bool) -> bool:
        """Whether content of a role may be a list of one part, or of several: seen from how a small chat comes out.

        Templates that know no lists fail on them, drop them, show the first part only, or print them as Python.
        """
        if (role, several) not in self._reads_parts:
            parts = PROBE_PARTS if several else PROBE_PARTS[:1]
            try:
                shown = self.render({"messages": _probe(role, parts), "tools": None, "add_generation_prompt": False})
            except StylerError:
                shown = ""
            is_read = all(part["text"] in shown for part in parts) and "'text'" not in shown
            self._reads_parts[role, several] = is_read
        return self._reads_parts[role, several]


PROBE_PARTS = [{"type": "text", "text": "part-one"}, {"type": "text", "text": "part-two"}]


def _probe(role: str, parts: object) -> list[dict[str, object]]:
    """Return a chat in which the content of `role` is a list."""
    call = {"id": "probe0001", "type": "function", "function": {"name": "probe", "arguments": {}}}
    system: dict[str, object] = {"role": "system", "content": "-"}
    user: dict[str, object] = {"role": "user", "content": "-"}
    calling: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": [call]}
    chats = {
        "system": [{**system, "content": parts}, user],
        "user": [{**user, "content": parts}],
        "assistant": [user, {"role": "assistant", "content": parts}],
        "tool": [user, calling, {"role": "tool", "content": parts, "tool_call_id": "probe0001", "name": "probe"}],
    }
    return chats.get(role, [])


@lru_cache(maxsize=64)
def load_template(source: str) -> ChatTemplate:
    """Compile a template, once for each text."""
    return ChatTemplate(source)


def _joined(chunks: Iterable[str]) -> str:
    kept, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_PROMPT_CHARS:
            raise StylerError(f"the model's chat template prints more than {MAX_PROMPT_CHARS} characters")
        kept.append(chunk)
    return "".join(kept)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which also refuses products that would fill the memory."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right` where it stays small."""
        if operator == "**" or _repeats(left, right) or _repeats(right, left):
            raise jinja2.TemplateRuntimeError(f"{operator!r} gives too large a value")
        return super().call_binop(context, operator, left, right)


def _repeats(value: object, times: object) -> bool:
    return isinstance(value, str | list | tuple) and isinstance(times, int) and len(value) * times > MAX_PROMPT_CHARS


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012 - the type that jinja2 declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Give back the statements of the body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateNamespace(Namespace):
    """`namespace(...)` whose attributes may not begin with an underscore, which the sandbox leaves unchecked."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # no `self` by name: a template may use it as a key
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not hold the private name {name!r}")


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    functions: dict[str, Callable[..., object]] = {
        "raise_exception": _raise_exception,
        "dict": _new_dict,
        "namespace": _TemplateNamespace,
    }
    environment.globals.update(functions)
    return environment


_ENVIRONMENT = _environment()
