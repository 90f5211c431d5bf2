"""One OpenAI-compatible server, as the load generator sees it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from benchmarks.sse import Answer, AnswerReader, Failure

PROBE_TIMEOUT = aiohttp.ClientTimeout(total=30)


class ServerError(Exception):
    """The server cannot be measured: not there, no model, or without something the measurement needs."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What is measured; `version` is None where the server has no /version."""

    base_url: str
    model: str
    version: str | None


def open_session(api_key: str | None, timeout_s: float) -> aiohttp.ClientSession:
    """Return a session without a bound on connections: the load alone decides how many there are."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


class Client:
    """Sends chats to one server and times their answers."""

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._chat_url = f"{self._base_url}/chat/completions"
        self._clock = clock

    async def send(self, body: bytes) -> Answer | Failure:
        """Send one chat, a JSON body with `stream` true, and read its answer to the end."""
        reader, clock = AnswerReader(), self._clock
        sent_at = clock()
        try:
            async with self._session.post(self._chat_url, data=body) as response:
                if response.status != 200:
                    return Failure(f"http_{response.status}", (await response.read())[:200].decode(errors="replace"))
                async for data in response.content.iter_any():
                    reader.feed(data, clock())
        except TimeoutError:
            return Failure("timeout", "no complete answer in time")
        except (aiohttp.ClientError, OSError) as exc:
            return Failure("connection", str(exc) or repr(exc))
        return reader.result(sent_at)

    async def describe(self, model: str | None) -> ServerInfo:
        """Find out what is measured: `model`, else the first one the server lists. Raises ServerError."""
        return ServerInfo(self._base_url, model or await self._first_model(), await self._version())

    async def _first_model(self) -> str:
        match await self._get(f"{self._base_url}/models"):
            case {"data": [{"id": str(model)}, *_]}:
                return model
            case _:
                raise ServerError(f"{self._base_url}/models lists no model; name one with --model")

    async def _version(self) -> str | None:
        try:
            answer = await self._get(f"{self._base_url.removesuffix('/v1')}/version")
        except ServerError:
            return None
        return str(answer["version"]) if isinstance(answer, dict) and "version" in answer else None

    async def _get(self, url: str) -> object:
        try:
            async with self._session.get(url, timeout=PROBE_TIMEOUT) as response:
                response.raise_for_status()
                answer: object = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError) as exc:  # a TimeoutError is an OSError
            raise ServerError(f"{url}: {exc or type(exc).__name__}") from exc
        return answer
