"""What routes share, by FastAPI's dependencies."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from llm_server.config import ServerConfig
from llm_server.lifecycle import Lifecycle
from llm_server.middleware import RequestRecord
from llm_server.registry import ModelRegistry
from llm_server.services.chat import ChatService


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of a running server."""

    config: ServerConfig
    registry: ModelRegistry
    lifecycle: Lifecycle
    chat: ChatService


async def _server(request: Request) -> ServerState:
    return cast(ServerState, request.app.state.server)


async def _record(request: Request) -> RequestRecord:
    return cast(RequestRecord, request.state.record)


ServerDep = Annotated[ServerState, Depends(_server)]
RecordDep = Annotated[RequestRecord, Depends(_record)]
