"""From exceptions to OpenAI error bodies: one table, for HTTP answers and for errors inside a stream alike.

What a client can cause has a line in the table. Everything else is our own fault: its traceback goes to the log and
the client gets a 500 that tells nothing of it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from engines.errors import EngineError, OverloadedError
from llm_server.protocol.errors import ErrorBody, ErrorDetail
from stylers.errors import StylerError

log = logging.getLogger(__name__)

INVALID = "invalid_request_error"
SERVER = "server_error"


class RequestError(Exception):
    """A request that the server refuses. `param` names the field at fault."""

    code: str | None = None

    def __init__(self, message: str, param: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or type(self).code


class InvalidBodyError(RequestError):
    """The body is not what the route takes: not JSON, not UTF-8, or a field of a wrong type or out of range."""


class UnsupportedParameterError(RequestError):
    """A field that the API knows and this server does not honour; refused by name instead of being ignored."""

    code = "unsupported_parameter"


class ModelNotFoundError(RequestError):
    """No model is served under that name."""

    code = "model_not_found"


class BodyTooLargeError(RequestError):
    """The body is larger than the server takes."""

    code = "request_too_large"


class DrainingError(RequestError):
    """The server shuts down: it finishes what runs and takes nothing new."""

    code = "draining"


class ClientGoneError(Exception):
    """The client hung up; nobody reads the answer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one sort of exception is told to the client."""

    status: int
    type: str


@dataclass(frozen=True, slots=True)
class RenderedError:
    """A status with the body and headers that go with it."""

    status: int
    body: ErrorBody
    headers: Mapping[str, str] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "invalid_request": Kind(400, INVALID),
    "context_length_exceeded": Kind(400, INVALID),
    "unsupported_parameter": Kind(400, INVALID),
    "unsupported_request": Kind(400, INVALID),
    "invalid_guide": Kind(400, INVALID),
    "invalid_body": Kind(400, INVALID),
    "model_not_found": Kind(404, INVALID),
    "request_too_large": Kind(413, INVALID),
    "overloaded": Kind(429, "rate_limit_error"),
    "engine_error": Kind(500, SERVER),
    "step_failed": Kind(500, SERVER),
    "timed_out": Kind(504, SERVER),
    "engine_dead": Kind(503, SERVER),
    "draining": Kind(503, SERVER),
}
"""Every stable code with its status and OpenAI type."""

MAX_MESSAGE_CHARS = 2000
INTERNAL_MESSAGE = "The server failed while handling the request. Its log has the details."
PARAM_OF_FIELD: Mapping[str, str] = {"bad_token_sequences": "bad_words"}
"""Fields of the engines' contract by the name that the client knows them by."""


def render_error(exc: Exception) -> RenderedError:
    """Return what the client is told about an exception; log it where it is not the client's."""
    if isinstance(exc, ValidationError):
        return render_validation(exc.errors(include_url=False, include_input=False))
    if isinstance(exc, HTTPException):
        kind = SERVER if exc.status_code >= 500 else INVALID
        return _rendered(exc.status_code, kind, str(exc.detail), headers=exc.headers)
    if isinstance(exc, RequestError | EngineError | StylerError):
        return _render_known(exc)
    log.error("unhandled error", exc_info=exc)
    return _rendered(500, SERVER, INTERNAL_MESSAGE, code="internal_error")


def render_validation(problems: Sequence[Mapping[str, object]]) -> RenderedError:
    """Render the first of the problems that pydantic found in a body."""
    location = problems[0]["loc"]
    param = _dotted(location) if isinstance(location, tuple) else None
    message = str(problems[0]["msg"]).removeprefix("Value error, ")  # pydantic's, before what a validator of ours says
    return _rendered(400, INVALID, f"{param}: {message}" if param else message, param)


def _render_known(exc: RequestError | EngineError | StylerError) -> RenderedError:
    kind = KINDS.get(exc.code or "invalid_body")
    if kind is None:
        log.error("error without a line in the table", exc_info=exc)
        kind = Kind(500, SERVER)
    if kind.status >= 500:
        log.warning("%s: %s", exc.code, exc.message)
    param: str | None = getattr(exc, "param", None)
    headers = {"Retry-After": str(exc.retry_after_s)} if isinstance(exc, OverloadedError) else {}
    return _rendered(kind.status, kind.type, exc.message, PARAM_OF_FIELD.get(param or "", param), exc.code, headers)


def _rendered(
    status: int,
    kind: str,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> RenderedError:
    if len(message) > MAX_MESSAGE_CHARS:  # it quotes what the client sent
        message = f"{message[:MAX_MESSAGE_CHARS]}..."
    detail = ErrorDetail(message=message, type=kind, param=param, code=code)
    return RenderedError(status, ErrorBody(error=detail), headers or {})


def _dotted(location: tuple[object, ...]) -> str | None:
    """`("messages", 2, "role")` as `messages[2].role`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or None
