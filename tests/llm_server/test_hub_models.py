"""An engine folder follows its branch on the hub, and outlives it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engines.folder import EngineFolder
from engines.progress import Phase
from llm_server import paths
from llm_server.pull import PullError, pull
from llm_server.sources.hub import HubSource
from tests.hf_folders import write_metadata
from tests.llm_server.sources.hub_endpoint import COMMIT, HubEndpoint
from tests.tiny_gguf import TinyModel, write_tiny_gguf

NEWER = "f" * 40
Phases = Callable[[str], set[Phase]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return write_tiny_gguf(folder / "tiny.gguf").parent


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> HubEndpoint:
    """An endpoint that all sources ask; it answers inside `hub.serving()`."""
    hub = HubEndpoint({"org/tiny": repository})
    monkeypatch.setattr("llm_server.sources.hub.HubSource", lambda location: HubSource(location, endpoint=hub.url))
    return hub


@pytest.fixture
def phases_of(tmp_path: Path) -> Phases:
    """Pull a model and tell what that took."""

    def phases(model: str) -> set[Phase]:
        seen: set[Phase] = set()
        pull(model, tmp_path / "home", lambda phase, done, total: seen.add(phase))
        return seen

    return phases


def revision(home: Path) -> str | None:
    return EngineFolder.load(paths.engines(home) / "tiny", verify=True).description.source_revision


def test_a_branch_that_moved_is_built_anew(
    hub: HubEndpoint, repository: Path, phases_of: Phases, tmp_path: Path
) -> None:
    with hub.serving():
        assert {Phase.DOWNLOAD, Phase.CONVERT} <= phases_of("hf:org/tiny")
        assert revision(tmp_path / "home") == COMMIT
        hub.requests.clear()
        assert phases_of("hf:org/tiny") == set()
        assert len(hub.requests) == 1
        write_tiny_gguf(repository / "tiny.gguf", TinyModel(seed=1))
        hub.commit = NEWER
        assert {Phase.DOWNLOAD, Phase.CONVERT} <= phases_of("hf:org/tiny")
        assert revision(tmp_path / "home") == NEWER


@pytest.mark.parametrize("how", ["out of reach", "offline"])
def test_without_the_hub_what_is_here_is_served(
    how: str, hub: HubEndpoint, phases_of: Phases, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub.serving():
        phases_of("hf:org/tiny")
    if how == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert phases_of("hf:org/tiny") == set()
    assert "hf:org/tiny cannot be found" in caplog.text
    with pytest.raises(PullError, match="hf:org/other cannot be found"):
        phases_of("hf:org/other")


def test_a_named_commit_and_a_named_folder_are_never_looked_up(
    hub: HubEndpoint, phases_of: Phases, caplog: pytest.LogCaptureFixture
) -> None:
    with hub.serving():
        phases_of(f"hf:org/tiny@{COMMIT}")
        hub.requests.clear()
        assert phases_of(f"hf:org/tiny@{COMMIT}") == phases_of("tiny") == set()
    assert (hub.requests, caplog.text) == ([], "")


def test_a_killed_download_goes_on(hub: HubEndpoint, repository: Path, phases_of: Phases, tmp_path: Path) -> None:
    engines = paths.engines(tmp_path / "home")
    left = engines / ".tiny.download"
    left.mkdir(parents=True)
    (left / ".commit").write_text(COMMIT)
    (left / "tiny.gguf.partial").write_bytes((repository / "tiny.gguf").read_bytes()[:70_000])
    with hub.serving():
        phases_of("hf:org/tiny")
    assert hub.line.ranges == ["bytes=70000-"]
    assert {path.name for path in engines.iterdir()} == {"tiny", ".tiny.lock"}


def test_what_was_downloaded_stays_until_it_can_be_converted(
    hub: HubEndpoint, repository: Path, tiny_engine: Path, phases_of: Phases, tmp_path: Path
) -> None:
    (repository / "tiny.gguf").unlink()
    (write_metadata(repository, tiny_engine) / "model.safetensors").touch()
    with hub.serving():
        for _ in range(2):
            with pytest.raises(PullError, match="Make it once with: llm-server convert-env"):
                phases_of("hf:org/tiny")
    assert len(hub.line.ranges) == 5
