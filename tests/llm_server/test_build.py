"""Engine folders are built when something changed, kept when nothing did, and never half there."""

import errno
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from engines.folder import EngineFolder
from engines.progress import Phase
from llm_server import cli, paths
from llm_server.pull import PullError, carry_out, make_plan, pull, remove
from llm_server.sources.catalog import DEFAULT_MODEL
from tests.hf_folders import write_ir_folder
from tests.tiny_gguf import TinyModel, write_tiny_gguf

NUM_KILLS = 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_SERVER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def phases_of(model: str, home: Path) -> list[Phase]:
    seen: list[Phase] = []
    pull(model, home, lambda phase, done, total: seen.append(phase))
    return list(dict.fromkeys(seen))


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_folder_survives_a_kill_at_any_moment(model: Path, home: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["llm_server.pull", "engines.openvino.builder"])
    pull(str(write_tiny_gguf(model.with_name("warm.gguf"))), home)  # imports take their time once
    remove("warm", home)
    start = time.perf_counter()
    engine = pull(str(model), home)
    whole_s = time.perf_counter() - start
    moments, num_unfinished = random.Random(0), 0
    for attempt in range(NUM_KILLS):
        write_tiny_gguf(model, TinyModel(seed=attempt + 1))  # another model each time: the old folder is outdated
        child = processes.Process(target=pull, args=(str(model), home))
        child.start()
        child.join(moments.uniform(0, whole_s))
        num_unfinished += child.is_alive()
        child.kill()
        child.join()
        if engine.exists():  # what is there is whole, old or new
            EngineFolder.load(engine, verify=True)
        folder = EngineFolder.load(pull(str(model), home), verify=True)
        assert folder.description.source_stamp == make_plan(str(model), home).source.stamp()
    assert num_unfinished  # most of them; how many depends on what else the machine does
    assert [path.name for path in engine.parent.iterdir() if not path.name.endswith(".lock")] == ["tiny"]


def test_an_unchanged_file_is_not_read_and_a_touched_one_not_rebuilt(model: Path, home: Path) -> None:
    pull(str(model), home)
    assert phases_of(str(model), home) == []
    os.utime(model, (1, 1))
    assert phases_of(str(model), home) == [Phase.VERIFY]
    assert phases_of(str(model), home) == []  # its new look was noted
    EngineFolder.load(paths.engines(home) / "tiny", verify=True)


def test_a_touched_file_is_served_from_a_cache_that_cannot_be_written(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pull(str(model), home)
    before = (folder / "engine.json").read_bytes()
    os.utime(model, (1, 1))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)  # a test may run as root, whom no mode keeps from writing
    assert pull(str(model), home) == folder
    assert (folder / "engine.json").read_bytes() == before


def test_a_current_folder_is_served_without_writing(model: Path, home: Path) -> None:
    folder = pull(str(model), home)
    (home / "engines" / ".tiny.lock").unlink()
    before = sorted(home.rglob("*"))
    assert pull(str(model), home) == pull("tiny", home) == folder
    assert sorted(home.rglob("*")) == before


def test_a_folder_is_found_by_name_and_by_path_without_its_source(model: Path, home: Path, tmp_path: Path) -> None:
    folder = pull(str(model), home)
    model.unlink()
    elsewhere = tmp_path / "made-elsewhere"
    shutil.copytree(folder, elsewhere)
    assert (pull("tiny", home), pull(str(elsewhere), home)) == (folder, elsewhere)
    (elsewhere / "tokenizer.json").write_text("{}")
    with pytest.raises(PullError, match=r"tokenizer\.json has 2 bytes instead of"):
        pull(str(elsewhere), home)


def test_a_name_of_an_older_builder_is_built_anew(model: Path, home: Path) -> None:
    folder = pull(str(model), home)
    description = folder / "engine.json"
    description.write_text(description.read_text().replace("openvino-gguf-", "openvino-gguf-0."))
    assert Phase.CONVERT in phases_of("tiny", home)


def test_an_ir_folder_is_adopted_and_followed(tiny_engine: Path, home: Path, tmp_path: Path) -> None:
    folder = write_ir_folder(tmp_path / "Tiny IR", tiny_engine)
    engine = pull(str(folder), home)
    assert engine.name == "tiny-ir"
    assert EngineFolder.load(engine).description.source == f"folder:{folder}"
    assert phases_of(str(folder), home) == []
    write_ir_folder(folder, tiny_engine, max_position_embeddings=256)
    pull(str(folder), home)
    assert EngineFolder.load(engine).description.max_sequence_length == 256


def test_out_names_the_folder_and_never_replaces_another(model: Path, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    assert carry_out(make_plan(str(model), home, out=out)) == out
    assert carry_out(make_plan(str(model), home, out=out)) == out
    precious = tmp_path / "documents"
    precious.mkdir()
    (precious / "thesis.txt").touch()
    with pytest.raises(PullError, match=r"documents is there and is not an engine folder"):
        make_plan(str(model), home, out=precious)


def test_names_of_the_catalogue_are_not_taken(home: Path, tmp_path: Path) -> None:
    namesake = write_tiny_gguf(tmp_path / f"{DEFAULT_MODEL}.gguf")
    assert make_plan(str(namesake), home).final.name == f"{DEFAULT_MODEL}-gguf"
    assert make_plan(DEFAULT_MODEL, home).final.name == DEFAULT_MODEL


def test_an_unknown_precision_is_refused_with_the_known_ones(model: Path, home: Path) -> None:
    with pytest.raises(PullError, match="precision 'int3' is not one of f16, int8, int4"):
        make_plan(str(model), home, precision="int3")


def test_the_command_line_plans_builds_lists_and_removes(
    model: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = paths.engines(home) / "tiny"
    code, out, _ = outcome(capsys, "build", str(model), "--dry-run")
    assert (code, home.exists()) == (0, False)
    assert out.splitlines() == [
        f"source     gguf:{model}",
        "precision  f16",
        f"folder     {folder}",
        "download   nothing",
        "build      yes: it is not here yet",
    ]
    assert outcome(capsys, "build", str(model))[:2] == (0, f"ready: {folder}\n")
    assert outcome(capsys, "build", str(model), "--dry-run")[1].endswith("build      no: nothing has changed\n")
    titles, row = outcome(capsys, "models")[1].splitlines()[:2]
    assert titles.split() == ["model", "state", "engine", "precision", "size", "context", "styler", "source"]
    assert row.split()[:4] == ["tiny", "ready", "openvino", "f16"]
    assert row.split()[5:] == ["MB", "512", "generic", f"gguf:{model}"]
    assert outcome(capsys, "rm", "tiny")[1].startswith("removed tiny: 0.")
    assert (folder.exists(), model.exists()) == (False, True)


@pytest.mark.parametrize("name", ["tiny", "..", "../engines", "", ".tiny.lock", "/tmp"])
def test_only_models_here_are_removed(name: str, home: Path) -> None:
    paths.engines(home).mkdir(parents=True)
    with pytest.raises(PullError, match="there is no model"):
        remove(name, home)
    assert paths.engines(home).is_dir()


@pytest.mark.parametrize("arguments", [("build", "nothing-here"), ("rm", "nothing-here")])
def test_a_mistake_is_one_line(arguments: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
