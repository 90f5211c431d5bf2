"""GET and HEAD /health, /health/ready and /version: for load balancers and people, without any key."""

from fastapi import APIRouter
from starlette.responses import JSONResponse

from llm_server import __version__
from llm_server.routers.state import ServerDep

router = APIRouter()


@router.get("/health", response_model=None)
@router.head("/health", response_model=None, include_in_schema=False)
async def health(server: ServerDep) -> JSONResponse:
    """Whether the process should live on: 503 once an engine is dead, which only a restart mends."""
    dead = [model.name for model in server.registry if not model.executor.is_alive]
    return _answer({"status": "dead", "models": dead} if dead else {"status": "ok"}, healthy=not dead)


@router.get("/health/ready", response_model=None)
@router.head("/health/ready", response_model=None, include_in_schema=False)
async def ready(server: ServerDep) -> JSONResponse:
    """Whether to send requests here: 503 while draining as well as with a dead engine."""
    if server.lifecycle.is_draining:
        return _answer({"status": "draining"}, healthy=False)
    return await health(server)


@router.get("/version")
@router.head("/version", include_in_schema=False)
async def version() -> dict[str, str]:
    """Return the server's version."""
    return {"version": __version__}


def _answer(content: dict[str, object], *, healthy: bool) -> JSONResponse:
    return JSONResponse(content, 200 if healthy else 503)
