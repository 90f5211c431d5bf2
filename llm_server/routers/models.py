"""GET and HEAD /v1/models."""

from fastapi import APIRouter

from llm_server.protocol.models import ModelCard, ModelList
from llm_server.registry import ServedModel
from llm_server.routers.state import ServerDep

router = APIRouter()


@router.get("/v1/models")
@router.head("/v1/models", include_in_schema=False)
async def list_models(server: ServerDep) -> ModelList:
    """List the served models."""
    return ModelList(data=[_card(model) for model in server.registry])


@router.get("/v1/models/{model:path}")
@router.head("/v1/models/{model:path}", include_in_schema=False)
async def get_model(model: str, server: ServerDep) -> ModelCard:
    """Describe one model; its name may have slashes."""
    return _card(server.registry.get(model))


def _card(model: ServedModel) -> ModelCard:
    return ModelCard(
        id=model.name,
        created=model.created,
        owned_by="llm-server",
        root=model.base or model.name,
        parent=model.base,
        max_model_len=model.context_length,
    )
