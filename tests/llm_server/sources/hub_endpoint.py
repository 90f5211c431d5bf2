"""A small HTTP server that speaks as much of the Hugging Face Hub's API as a download needs."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubEndpoint:
    """Repositories by name, each a folder; every revision but "gone" is the same `commit`.

    `hashes` are stated in place of the real ones; `requests` are the paths that were asked for.
    """

    def __init__(self, repositories: Mapping[str, Path], hashes: Mapping[str, str] | None = None) -> None:
        self._repositories = repositories
        self._hashes = hashes or {}
        self.requests: list[str] = []
        self.commit = COMMIT
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator["HubEndpoint"]:
        """Answer on a free port until the block ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def model_info(self, repository: str, folder: Path) -> dict[str, object]:
        """What the hub says about a repository."""
        siblings = []
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, content = file.relative_to(folder).as_posix(), file.read_bytes()
            sha256 = self._hashes.get(name, hashlib.sha256(content).hexdigest())
            lfs = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append({"rfilename": name, "size": len(content), "blobId": sha256[:40], "lfs": lfs})
        return {"id": repository, "modelId": repository, "sha": self.commit, "siblings": siblings, "tags": []}

    def find(self, path: str) -> tuple[str, Path] | None:
        """Find the repository that a path is about."""
        return next((entry for entry in self._repositories.items() if f"/{entry[0]}/" in f"{path}/"), None)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self, *, with_body: bool) -> None:
                path = unquote(urlsplit(self.path).path)
                endpoint.requests.append(path)
                found = endpoint.find(path)
                if found is None:
                    return self._refuse("RepoNotFound")
                repository, folder = found
                if "/gone" in path:
                    return self._refuse("RevisionNotFound")
                if path.startswith("/api/models/"):
                    body = json.dumps(endpoint.model_info(repository, folder)).encode()
                    return self._send(body, {"Content-Type": "application/json"}, with_body)
                file = folder / path.partition(f"/{repository}/resolve/{endpoint.commit}/")[2]
                if not file.is_file():
                    return self._refuse("EntryNotFound")
                body = file.read_bytes()
                tag = hashlib.sha256(body).hexdigest()
                return self._send(body, {"ETag": f'"{tag}"', "X-Repo-Commit": endpoint.commit}, with_body)

            def _refuse(self, code: str) -> None:
                self.send_response(404)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _send(self, body: bytes, headers: Mapping[str, str], with_body: bool) -> None:
                self.send_response(200)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

        return Handler
