"""A small HTTP server that speaks as much of the Hugging Face Hub's API as a download needs."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.llm_server.sources.ranged import Line, RangedHandler, serving

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
        self.line = Line()
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator["HubEndpoint"]:
        """Answer on a free port until the block ends."""
        with serving(self._handler()) as self.url:
            yield self

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

        class Handler(RangedHandler):
            def do_GET(self) -> None:  # noqa: N802  # http.server calls it so
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
                    return self.send_body(body, {"Content-Type": "application/json"})
                file = folder / path.partition(f"/{repository}/resolve/{endpoint.commit}/")[2]
                if not file.is_file():
                    return self._refuse("EntryNotFound")
                return self.send_file(file.read_bytes(), endpoint.line, {"X-Repo-Commit": endpoint.commit})

            def _refuse(self, code: str) -> None:
                self.send_body(b"", {"X-Error-Code": code}, 404)

        return Handler
