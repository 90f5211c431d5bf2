import httpx
import pytest

from tests.doubles import ScriptedExecutor
from tests.llm_server.serving import MODEL, ask, chat_body


def logged(caplog: pytest.LogCaptureFixture, path: str, **fields: object) -> str:
    async def talk(http: httpx.AsyncClient) -> httpx.Response:
        return await (http.post(path, json=chat_body() | fields) if fields else http.get(path))

    with caplog.at_level("INFO", "llm_server.access"):
        ask(ScriptedExecutor(), talk)
    return "\n".join(record.message for record in caplog.records if record.name == "llm_server.access")


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_tells_of_a_chat_what_it_cost_and_how_it_ended(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    line = logged(caplog, "/v1/chat/completions", stream=stream, n=2)
    assert "POST /v1/chat/completions 200 " in line
    assert f"model={MODEL} prompt=21 completion=14 ttft=0." in line
    assert "finish=stop,stop" in line
    assert "answer=chatcmpl-" in line


def test_a_refusal_is_logged_with_its_status_and_cause(caplog: pytest.LogCaptureFixture) -> None:
    line = logged(caplog, "/v1/chat/completions", n=0)
    assert "POST /v1/chat/completions 400 " in line
    assert line.endswith("error=invalid_request_error (n)")
    assert "error=model_not_found (model)" in logged(caplog, "/v1/chat/completions", model="nobody")


def test_a_path_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    assert "GET /a%0Ab 404 " in logged(caplog, "/a%0Ab")


def test_health_checks_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, "/health/ready") == ""
