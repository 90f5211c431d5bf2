"""A server over a scripted executor behind a real socket, in a thread of its own."""

import asyncio
import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from llm_server.app import create_app
from llm_server.config import ServerConfig
from llm_server.lifecycle import Lifecycle
from llm_server.registry import ModelRegistry, ServedModel
from llm_server.server import Server, bind
from tests.doubles import ScriptedExecutor
from tests.llm_server.serving import chat_body, served

PATIENCE_S = 10


@dataclass
class Address:
    """Where the server listens, and its loop to call things on."""

    port: int
    loop: asyncio.AbstractEventLoop
    server: Server

    def begin_drain(self) -> None:
        """Tell the server to stop, as a signal would."""
        self.loop.call_soon_threadsafe(self.server.begin_drain)

    def connect(self, body: bytes = b"", **headers: object) -> socket.socket:
        """Open a connection and post a chat with `body`."""
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        lines = ["POST /v1/chat/completions HTTP/1.1", "Host: test", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if not headers:
            lines.append(f"Content-Length: {len(body)}")
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return connection

    def ask(self, **fields: Any) -> socket.socket:
        """Post a chat."""
        return self.connect(json.dumps(chat_body(**fields)).encode())


@contextmanager
def listening(executor: ScriptedExecutor) -> Iterator[Address]:
    """Serve `executor` on a free port until the block ends."""
    with serving_models(served(executor)) as address:
        yield address


@contextmanager
def serving_models(*models: ServedModel, drain_timeout_s: float = 0) -> Iterator[Address]:
    """Serve models on a free port until the block ends."""
    config = ServerConfig(port=0, drain_timeout_s=drain_timeout_s)
    lifecycle, registry = Lifecycle(), ModelRegistry(models)
    ready: queue.Queue[asyncio.AbstractEventLoop] = queue.Queue()
    app = create_app(config, registry, lifecycle)
    server = Server(app, config, lifecycle, registry, lambda: ready.put(asyncio.get_running_loop()))
    listener = bind(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = Address(listener.getsockname()[1], ready.get(timeout=PATIENCE_S), server)
    try:
        yield address
    finally:
        with suppress(RuntimeError):  # it has stopped already, and its loop is closed
            address.begin_drain()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """Read until `mark` has come. Fails if the connection ends before."""
    data = b""
    while mark not in data:
        chunk = connection.recv(65536)
        assert chunk, f"{mark!r} never came: {data!r}"
        data += chunk
    return data
