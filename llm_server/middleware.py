"""What surrounds every request, as plain ASGI: its id, its line in the log, and the refusal while draining.

Nothing here runs per chunk but one function call: a wrapper that copies messages costs more than the chunk itself.
"""

import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_server.errors import DrainingError, RenderedError, render_error
from llm_server.lifecycle import Lifecycle

log = logging.getLogger("llm_server.access")

SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
ALWAYS_ANSWERED = frozenset(("/health", "/health/ready", "/version"))


@dataclass(slots=True)
class RequestRecord:
    """What the log tells of a request; routes fill in what they know."""

    request_id: str
    method: str
    path: str
    started_s: float = field(default_factory=time.perf_counter)
    status: int = 0
    answer_id: str | None = None
    model: str | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish: str | None = None
    error: str | None = None
    """Code, or type, of the error that was answered."""

    def mark_first_token(self) -> None:
        """Note the time to the first token."""
        self.ttft_s = time.perf_counter() - self.started_s

    def line(self) -> str:
        """Return the line for the log."""
        elapsed_s = time.perf_counter() - self.started_s
        parts = [f"{self.method} {self.path} {self.status} {elapsed_s:.3f}s id={self.request_id}"]
        if self.model is not None:
            parts.append(f"answer={self.answer_id} model={self.model}")
            parts.append(f"prompt={self.prompt_tokens} completion={self.completion_tokens}")
        if self.ttft_s is not None:
            parts.append(f"ttft={self.ttft_s:.3f}s")
        if self.finish is not None:
            parts.append(f"finish={self.finish}")
        if self.error is not None:
            parts.append(f"error={self.error}")
        return " ".join(parts)


class RequestMiddleware:
    """Outermost of ours: everything that goes wrong inside and has not been answered is answered here."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(_request_id(scope), scope["method"], quote(scope["path"]))
        scope.setdefault("state", {})["record"] = record
        header = (b"x-request-id", record.request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], header]
            await send(message)

        self._lifecycle.enter()
        try:
            await self._answer(scope, receive, send_with_id, record)
        finally:
            self._lifecycle.leave()
            log.log(logging.DEBUG if record.path in ALWAYS_ANSWERED else logging.INFO, "%s", record.line())

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        try:
            if self._lifecycle.is_draining and scope["path"] not in ALWAYS_ANSWERED:
                raise DrainingError("the server is shutting down and takes no new requests")
            await self._app(scope, receive, send)
        except Exception as exc:
            rendered = render_error(exc)
            if not record.status:
                await error_response(rendered, record)(scope, receive, send)


def error_response(rendered: RenderedError, record: RequestRecord) -> JSONResponse:
    """Return the HTTP answer to a rendered error, and note it for the log."""
    detail = rendered.body.error
    record.error = f"{detail.code or detail.type}{f' ({detail.param})' if detail.param else ''}"
    return JSONResponse(rendered.body.model_dump(), rendered.status, dict(rendered.headers))


def _request_id(scope: Scope) -> str:
    """The client's own id where it is sane, else a fresh one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and SANE_REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex
