import inspect
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from engines.config import EngineConfig
from llm_server import __version__, cli
from llm_server.config import ALL_OPTIONS, ModelConfig, ServerConfig
from tests.llm_server.serving import events_of, text_of

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _keep_logging_as_it_is() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_every_option_is_a_flag() -> None:
    assert inspect.signature(cli.serve).parameters.keys() - {"config"} == ALL_OPTIONS


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys) == outcome(capsys, "--help")


def test_the_help_tells_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outcome(capsys, "serve", "--help")
    text = " ".join(out.split())
    options = [option for config in (ServerConfig, ModelConfig, EngineConfig) for option in fields(config)]
    for name, default in ((option.name, option.default) for option in options):
        if isinstance(default, str | int | float) and not isinstance(default, bool) and name != "model":
            shown = default if isinstance(default, str) else f"{default:g}"
            assert re.search(rf"--{name.replace('_', '-')} <\w+> [^\[]*\[{re.escape(shown)}[];]", text), name


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, "--version") == (0, f"llm-server {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--bogus"), "No such option: --bogus"),
        (("fly",), "No such command 'fly'"),
        (("serve", "--port", "x"), "--port"),
        (("serve", "--port", "99999"), "port must be between 0 and 65535"),
        (("serve", "--precision", "fp4"), "'auto', 'bf16' or 'f32'"),
        (("serve", "--config", "none.toml"), "none.toml cannot be read"),
        (("serve", "--port", "0", "no-such-model"), "no-such-model"),
        (("serve", "--port", "0", "--styler", "no-such-family"), "no-such-family"),
        (("serve", "--port", "0", "--chat-template", "none.jinja"), "none.jinja cannot be read: No such file"),
        (("serve", "--host", "192.0.2.1"), "cannot listen on 192.0.2.1 port 8000"),
        (("serve", "--host", "x" * 64), "label too long"),
        (("pull", "no-such-model"), "no-such-model"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], default_engine: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = outcome(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("llm-server: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_busy_port_is_found_before_the_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = outcome(capsys, "serve", "--port", str(port), "gguf:/no/such/file.gguf")
    assert code == 2
    assert err == f"llm-server: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_models_lists_what_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "engines" / "broken"
    broken.mkdir(parents=True)
    monkeypatch.setenv("LLM_SERVER_HOME", str(tmp_path))
    code, out, _ = outcome(capsys, "models")
    assert code == 0
    assert "smollm2-135m-instruct  not here yet" in out
    assert "broken" in out


def test_serving_the_default_model_from_the_command_line(default_engine: Path) -> None:
    command = [sys.executable, "-m", "llm_server", "serve", "--port", "0", "--kv-cache-gib", "0.25"]
    environ = os.environ | {"LLM_SERVER_HOME": str(default_engine.parent.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        try:
            block = [process.stdout.readline() for _ in range(6)]
            url = block[4].split()[1]
            body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
            response = httpx.post(
                f"{url}/chat/completions", json=body | {"max_tokens": 8, "ignore_eos": True}, timeout=PATIENCE_S
            )
            assert text_of(events_of(response))
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert block[1].startswith("  model      smollm2-135m-instruct (smollm2, context ")
    assert "KV cache" in block[3]
    assert f"curl {url}/chat/completions" in block[5]
    assert "finish=length" in log
    assert "Traceback" not in log
