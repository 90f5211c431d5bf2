"""Settings of the server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP side of the server."""

    host: str = "127.0.0.1"
    port: int = 8000
    max_body_bytes: int = 32 * 2**20
    """A larger request body is refused with 413."""
    drain_timeout_s: float = 30.0
    """After a signal to stop, how long running answers may take to finish."""
