"""An OpenAI-compatible server that answers by a script, and the events it writes."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Body = Mapping[str, object]
DONE = b"data: [DONE]\n\n"


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def delta(finish_reason: str | None = None, **fields: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}], "usage": None})


def usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    details = None if cached is None else {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    return event({"choices": [], "usage": counts})


ROLE = delta(role="assistant", content="")
FINISH = delta("length")


@dataclass(frozen=True)
class Reply:
    """What the server writes to one chat, part by part, and the status it sends before."""

    parts: Sequence[bytes]
    status: int = 200


def says(*words: str, prompt_tokens: int = 10, cached: int | None = 4) -> Reply:
    """A complete answer of one token per word."""
    texts = [delta(content=word) for word in words]
    return Reply([ROLE, *texts, FINISH, usage(prompt_tokens, len(words), cached), DONE])


@dataclass
class ScriptedServer:
    """A running server: where it is, and the chats it was sent, in order."""

    base_url: str
    chats: list[Body] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # a whole load may connect at once; the default of 5 makes some wait a second


@contextmanager
def serving(answer: Callable[[Body], Reply], *, model: str = "scripted") -> Iterator[ScriptedServer]:
    """Serve until the block is left; `answer` turns the body of each chat into what is written."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = {"/v1/models": {"data": [{"id": model}]}, "/version": {"version": "1.2.3"}}
            self._start(200 if self.path in known else 404)
            self.wfile.write(json.dumps(known.get(self.path, {})).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.chats.append(body)
            state.keys.append(self.headers["Authorization"])
            reply = answer(body)
            self._start(reply.status)
            for part in reply.parts:
                self.wfile.write(part)
                self.wfile.flush()

        def _start(self, status: int) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
            pass

    server = Server(("127.0.0.1", 0), Handler)
    state = ScriptedServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
