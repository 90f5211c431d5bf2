"""Bodies of GET /v1/models. Source: OpenAI API reference, "Models"; `max_model_len` as other open servers add it."""

from typing import Literal

from pydantic import BaseModel


class ModelCard(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    max_model_len: int
    """Prompt and answer together, in tokens."""


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
