"""Bodies of GET /v1/models. Source: OpenAI API reference, "Models"; root, parent and max_model_len are vLLM's."""

from typing import Literal

from pydantic import BaseModel


class ModelCard(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    root: str
    """The model itself, or that of an adapter."""
    parent: str | None = None
    """The model that an adapter belongs to."""
    max_model_len: int
    """Prompt and answer together, in tokens."""


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
