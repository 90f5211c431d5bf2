"""HTTP answers that can be asked for from a place on, and that can break off."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Line:
    """What happens on the way to a client: the server may know no ranges, and cut an answer once after some bytes."""

    knows_ranges: bool = True
    cut_after: int | None = None
    ranges: list[str | None] = field(default_factory=list)
    """The ranges that files were asked for in, None for a whole one."""


class RangedHandler(BaseHTTPRequestHandler):
    """Says nothing on the terminal."""

    def log_message(self, *_: object) -> None:
        pass

    def send_file(self, body: bytes, line: Line, headers: Mapping[str, str]) -> None:
        """Send a file or what is wanted of it."""
        wanted = self.headers["Range"]
        line.ranges.append(wanted)
        start = int(re.findall(r"bytes=(\d+)-", wanted)[0]) if wanted and line.knows_ranges else None
        if start is not None and start >= len(body):
            return self.send_body(b"", headers, 416)
        cut_after, line.cut_after = line.cut_after, None
        if start is None:
            return self.send_body(body, headers, 200, cut_after)
        place = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        return self.send_body(body[start:], {**headers, **place}, 206, cut_after)

    def send_body(
        self, body: bytes, headers: Mapping[str, str], status: int = 200, cut_after: int | None = None
    ) -> None:
        """Send an answer, of which only so many bytes arrive."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:cut_after])


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer on a free port until the block ends; yields the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
