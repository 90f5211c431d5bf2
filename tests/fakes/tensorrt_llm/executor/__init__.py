"""The executor's public names."""

from .request import LoRARequest
from .utils import RequestError


class CppExecutorError(RuntimeError):
    """An error of the C++ executor."""


__all__ = ["CppExecutorError", "LoRARequest", "RequestError"]
