"""Pulling gives one whole engine folder, whoever else pulls and whoever dies meanwhile."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engines.folder import EngineFolder
from engines.progress import Phase
from llm_server import __version__, paths
from llm_server.pull import PullError, pull
from tests.tiny_gguf import TinyModel, write_tiny_gguf

# A process of its own: it prints the phases as they begin, and at the one it is told it waits for a line.
CHILD = """
import sys
from pathlib import Path
from llm_server.pull import pull
seen = []
def report(phase, done, total):
    if phase not in seen:
        seen.append(phase)
        print(phase, flush=True)
        if phase == sys.argv[3]:
            sys.stdin.readline()
pull(sys.argv[1], Path(sys.argv[2]), report)
"""


class Phases(list[Phase]):
    """The phases of a pull, each once, in the order they began."""

    def __call__(self, phase: Phase, done: int, total: int | None, /) -> None:
        if phase not in self:
            self.append(phase)


def start_pull(model: Path, home: Path, stop_at: Phase) -> subprocess.Popen[str]:
    """Start a pull in another process and return when it has come to this phase."""
    command = [sys.executable, "-c", CHILD, str(model), str(home), stop_at]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    assert f"{stop_at}\n" in iter(child.stdout.readline, "")
    return child


def visible(home: Path) -> list[str]:
    return sorted(path.name for path in paths.engines(home).iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "Tiny Model.Q8_0.gguf")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_second_pull_finds_the_folder(model: Path, home: Path) -> None:
    first, second = Phases(), Phases()
    folder = pull(str(model), home, first)
    assert folder == paths.engines(home) / "tiny-model.q8_0"
    assert first == [Phase.VERIFY, Phase.DEQUANTISE, Phase.CONVERT, Phase.WRITE]
    description = EngineFolder.load(folder, verify=True).description
    assert (description.source, description.versions["llm-server"]) == (f"gguf:{model}", __version__)
    assert pull(str(model), home, second) == folder
    assert second == []  # the file looks as it did: it is not even hashed
    assert visible(home) == [folder.name]


def test_a_changed_source_is_built_anew(model: Path, home: Path) -> None:
    before = EngineFolder.load(pull(str(model), home))
    write_tiny_gguf(model, TinyModel(seed=1))
    after = EngineFolder.load(pull(str(model), home), verify=True)
    assert after.path == before.path
    assert after.files["openvino_model.bin"].sha256 != before.files["openvino_model.bin"].sha256
    assert visible(home) == [after.path.name]


@pytest.mark.parametrize("name", ["engine.json", "openvino_model.bin", "tokenizer.json"])
def test_a_damaged_folder_is_built_anew(name: str, model: Path, home: Path) -> None:
    folder = pull(str(model), home)
    (folder / name).write_bytes((folder / name).read_bytes()[:-10])
    EngineFolder.load(pull(str(model), home), verify=True)


def test_the_same_name_of_another_source_is_refused(model: Path, home: Path, tmp_path: Path) -> None:
    pull(str(model), home)
    (tmp_path / "elsewhere").mkdir()
    namesake = write_tiny_gguf(tmp_path / "elsewhere" / model.name)
    with pytest.raises(PullError, match=f"was built from gguf:{model}; remove it"):
        pull(str(namesake), home)


def test_of_two_pulls_at_once_one_builds_and_the_other_waits(model: Path, home: Path) -> None:
    first, second = start_pull(model, home, Phase.DEQUANTISE), Phases()

    def let_first_go_on(phase: Phase, done: int, total: int | None, /) -> None:
        second(phase, done, total)
        if phase == Phase.WAIT:
            first.communicate("go on\n")

    folder = pull(str(model), home, let_first_go_on)
    assert second == [Phase.WAIT]
    assert first.returncode == 0
    EngineFolder.load(folder, verify=True)
    assert visible(home) == [folder.name]


@pytest.mark.parametrize("phase", [Phase.DEQUANTISE, Phase.CONVERT, Phase.WRITE])
def test_a_killed_pull_leaves_nothing_that_is_served_and_the_next_one_cleans_up(
    phase: Phase, model: Path, home: Path
) -> None:
    child = start_pull(model, home, phase)
    child.kill()
    child.communicate()
    assert all(name.startswith(".") for name in visible(home))
    folder = pull(str(model), home)
    EngineFolder.load(folder, verify=True)
    assert visible(home) == [folder.name]


def test_an_interrupted_pull_leaves_nothing(model: Path, home: Path) -> None:
    def interrupt(phase: Phase, done: int, total: int | None, /) -> None:
        if phase == Phase.CONVERT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(str(model), home, interrupt)
    assert visible(home) == []


def test_threads_of_one_process_build_once(model: Path, home: Path) -> None:
    phases = [Phases(), Phases()]
    threads = [threading.Thread(target=pull, args=(str(model), home, seen)) for seen in phases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(Phase.CONVERT in seen for seen in phases) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no-such-model", "'no-such-model' is neither a file.*; known by name are smollm2-135m-instruct$"),
        ("SmolLM2-135M-Instuct", "; did you mean smollm2-135m-instruct[?] Known by name are smollm2-135m-instruct$"),
        ("org/no-such-model", "Hub it would be hf:org/no-such-model"),
        ("folder/no-such-model.gguf", "there is no file or folder folder/no-such-model.gguf$"),
        ("pypi:name", "package==version"),
        ("gguf:/nowhere.gguf", "there is no file"),
    ],
)
def test_what_cannot_be_found_is_one_error(text: str, message: str, home: Path) -> None:
    with pytest.raises(PullError, match=message):
        pull(text, home)


def test_a_mistyped_name_of_what_is_here_is_told(model: Path, home: Path) -> None:
    pull(str(model), home)
    known = r"did you mean tiny-model\.q8_0\? Known by name are smollm2-135m-instruct, tiny-model\.q8_0$"
    with pytest.raises(PullError, match=known):
        pull("tiny-model.q8", home)


def test_a_file_that_cannot_be_converted_is_one_error_and_leaves_nothing(model: Path, home: Path) -> None:
    model.write_bytes(model.read_bytes()[:-1000])
    with pytest.raises(PullError, match="not a whole GGUF file"):
        pull(str(model), home)
    assert visible(home) == []


def test_a_home_that_cannot_be_written_is_one_error(model: Path, tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"cannot build an engine folder below .*Not a directory: .*Tiny Model.*"):
        pull(str(model), model / "home")


def test_a_full_disk_is_one_error_and_leaves_nothing(model: Path, home: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    command = [sys.executable, "-c", limited + CHILD, str(model), str(home), "never"]
    child = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert child.stderr.splitlines()[-1].startswith("llm_server.pull.PullError: ")
    assert visible(home) == []


def test_the_default_model_is_found_without_network_once_it_is_there(default_engine: Path) -> None:
    seen = Phases()
    assert pull("smollm2-135m-instruct", paths.home(), seen) == default_engine
    assert seen == []
