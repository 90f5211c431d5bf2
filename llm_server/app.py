"""The ASGI application: routes, error rendering and the models' lives."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI, Request
from pydantic import ValidationError
from sse_starlette.sse import AppStatus
from starlette.exceptions import HTTPException
from starlette.responses import Response

from engines.errors import EngineError
from llm_server import __version__
from llm_server.config import ServerConfig
from llm_server.errors import ClientGoneError, RequestError, render_error
from llm_server.lifecycle import Lifecycle
from llm_server.middleware import RequestMiddleware, error_response
from llm_server.registry import ModelRegistry
from llm_server.routers import chat, health, models
from llm_server.routers.state import ServerState
from llm_server.services.chat import ChatService
from stylers.errors import StylerError

CLIENT_CLOSED_REQUEST = 499  # nginx's word for it; nobody receives it, but the log shows it


def create_app(config: ServerConfig, registry: ModelRegistry, lifecycle: Lifecycle | None = None) -> FastAPI:
    """Build the application. Its lifespan starts the executors and shuts them down."""
    AppStatus.enable_automatic_graceful_drain = False  # streams end by themselves: the server drains before it stops
    lifecycle = lifecycle or Lifecycle()
    app = FastAPI(title="llm-server", version=__version__, lifespan=_lifespan)
    app.state.server = ServerState(config, registry, lifecycle, ChatService(registry))
    for router in (chat.router, models.router, health.router):
        app.include_router(router)
    for kind in (HTTPException, RequestError, EngineError, StylerError, ValidationError):
        app.add_exception_handler(kind, _render)
    for status in (404, 405):
        app.add_exception_handler(status, _no_route)
    app.add_exception_handler(ClientGoneError, _hung_up)
    app.add_middleware(RequestMiddleware, lifecycle=lifecycle)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    server: ServerState = app.state.server
    async with AsyncExitStack() as stack:
        for executor in server.registry.executors():
            await executor.start()
            stack.push_async_callback(executor.shutdown)
        yield


async def _render(request: Request, exc: Exception) -> Response:
    return error_response(render_error(exc), request.state.record)


async def _no_route(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    message = f"there is no {request.method} {request.url.path} here; a chat is a POST to /v1/chat/completions"
    return await _render(request, HTTPException(exc.status_code, message, exc.headers))


async def _hung_up(request: Request, exc: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
