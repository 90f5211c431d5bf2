"""Running the application under uvicorn, with a shutdown of our own.

uvicorn stops listening as soon as it is told to stop, and clients would see refused connections while answers still
run. So a signal only starts the drain: new requests get a 503, running ones finish; then uvicorn is stopped.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from llm_server.config import ConfigError, ServerConfig
from llm_server.connections import Connection
from llm_server.lifecycle import Lifecycle
from llm_server.registry import ModelRegistry

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CLOSE_TIMEOUT_S = 5  # for clients that do not read the end of their answers


def bind(config: ServerConfig) -> socket.socket:
    """Take the port before anything slow is done. Raises ConfigError where it is taken or the host is not ours."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            stack.pop_all()
    except (OSError, UnicodeError) as exc:  # UnicodeError: no name of a host
        reason = getattr(exc, "strerror", None) or str(exc)
        raise ConfigError(f"cannot listen on {config.host} port {config.port}: {reason}") from exc
    return listener


class Server(uvicorn.Server):
    """uvicorn's server; the first signal drains it, a second one ends the process at once."""

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        lifecycle: Lifecycle,
        registry: ModelRegistry,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            )
        )
        self._drain_timeout_s = config.drain_timeout_s
        self._lifecycle = lifecycle
        self._registry = registry
        self._on_ready = on_ready
        self._drain: asyncio.Task[None] | None = None
        self.engine_died = False
        """Whether that is why it stopped: only a new process can help."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the models and listen."""
        try:
            await super().startup(sockets=sockets)
        except OSError as exc:  # another server bound the same port and was first to listen
            raise ConfigError(f"cannot listen: {exc.strerror or exc}") from exc
        if self.started and self._on_ready is not None:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Stop when no engine is left alive. uvicorn calls this ten times a second.

        While some are, they go on; /health tells of the dead ones.
        """
        if self._drain is None and not any(executor.is_alive for executor in self._registry.executors()):
            log.error("stopping: no engine is alive")
            self.engine_died = True
            self.begin_drain()
        return await super().on_tick(counter)

    def begin_drain(self) -> None:
        """Stop once what runs has finished. Called on the loop; again is harmless."""
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._drain_then_stop())

    async def _drain_then_stop(self) -> None:
        try:
            if self._lifecycle.num_running:
                log.info(
                    "finishing what runs (requests: %d), up to %g s; a second signal stops at once",
                    self._lifecycle.num_running,
                    self._drain_timeout_s,
                )
            if not await self._lifecycle.drain(self._drain_timeout_s):
                await self._cut_off()
        finally:
            self.should_exit = True

    async def _cut_off(self) -> None:
        """Let streams end with an error event instead of nothing."""
        log.warning("cutting off %d requests", self._lifecycle.num_running)
        for executor in self._registry.executors():
            await executor.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in uvicorn's place, while it serves; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def handle(signum: int, frame: FrameType | None) -> None:
            for each in SIGNALS:
                signal.signal(each, signal.SIG_DFL)  # so that a second signal stops at once
            loop.call_soon_threadsafe(self.begin_drain)

        previous = {each: signal.signal(each, handle) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)
