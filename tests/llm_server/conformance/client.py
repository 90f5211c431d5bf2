"""A client of one server, which knows what its engine may refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from llm_server.registry import ServedModel
from tests.llm_server.serving import events_of
from tests.llm_server.sockets import PATIENCE_S, Address

MODEL = "tiny"
URL = "/v1/chat/completions"
Json = dict[str, Any]


def body_of(text: str = "hi", **fields: Any) -> Json:
    """A chat of one message; greedy, and of few tokens, unless `fields` say otherwise."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 16,
        **fields,
    }


@dataclass(frozen=True, slots=True)
class Client:
    """Asks one server. `model` is what the server serves: for what no answer shows."""

    http: httpx.Client
    address: Address
    model: ServedModel
    refuses: frozenset[str]

    @classmethod
    @contextmanager
    def connected(cls, address: Address, model: ServedModel, refuses: frozenset[str]) -> Iterator["Client"]:
        """Connect, and close the connections at the end."""
        with httpx.Client(base_url=f"http://127.0.0.1:{address.port}", timeout=PATIENCE_S) as http:
            yield cls(http, address, model, refuses)

    def post(self, text: str = "hi", **fields: Any) -> httpx.Response:
        """Ask, whatever comes."""
        return self.http.post(URL, json=body_of(text, **fields))

    def ask(self, text: str = "hi", **fields: Any) -> Json:
        """Return the answer. A field that the engine cannot honour must be refused by name; the test ends there."""
        return _json(self._honoured(text, fields))

    def stream(self, text: str = "hi", **fields: Any) -> list[Json]:
        """Return the events of a streamed answer, whose form is checked on the way."""
        return events_of(self._honoured(text, {**fields, "stream": True}))

    def text(self, text: str = "hi", **fields: Any) -> str:
        """Return the content of the first choice."""
        return str(self.ask(text, **fields)["choices"][0]["message"]["content"])

    def refusal(self, text: str = "hi", *, status: int = 400, **fields: Any) -> Json:
        """Return the error of a request that must be refused."""
        response = self.post(text, **fields)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        error = _json(response)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return dict(error)

    def token_id(self, token: str) -> int:
        """Return the id of a token of the vocabulary."""
        return self.model.tokenizer.encode(token, literal=False)[0]

    def _honoured(self, text: str, fields: Json) -> httpx.Response:
        response = self.post(text, **fields)
        refused = sorted(self.refuses & fields.keys())
        if not refused:
            assert response.status_code == 200, response.text
            return response
        assert response.status_code == 400, f"{refused} cannot be honoured: {response.text}"
        error = response.json()["error"]
        assert (error["code"], error["param"] in refused) == ("unsupported_parameter", True), error
        pytest.skip(f"{error['param']} is refused by name, as it must be")


def _json(response: httpx.Response) -> Json:
    body = response.json()
    assert isinstance(body, dict)
    return body
