"""The body of every error, in OpenAI's form."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What went wrong: for people in `message`, for programs in the rest."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """`{"error": {...}}`."""

    error: ErrorDetail
