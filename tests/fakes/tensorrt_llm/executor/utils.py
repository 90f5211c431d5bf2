"""Errors of single requests."""


class RequestError(RuntimeError):
    """The worker refused or failed one request."""
