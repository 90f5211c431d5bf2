"""Models come from the hub whole, of one commit, and only the files that are read."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.model_files import ModelFormat
from engines.progress import Phase, silent
from llm_server.sources import SourceError
from llm_server.sources.hub import HubSource
from tests.llm_server.sources.hub_endpoint import COMMIT, HubEndpoint

FILES = {
    "folder": ["config.json", "model.safetensors", "tokenizer.json", "pytorch_model.bin", "onnx/model.onnx"],
    "one-gguf": ["one.Q8_0.gguf", "README.md"],
    "many-ggufs": ["a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "deep/c.gguf"],
    "no-model": ["README.md"],
}


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hub")
    for repository, names in FILES.items():
        for name in names:
            file = root / repository / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(name.encode() * 1000)
    return {f"org/{repository}": root / repository for repository in FILES}


@pytest.fixture
def hub(repositories: dict[str, Path]) -> Iterator[HubEndpoint]:
    with HubEndpoint(repositories).serving() as endpoint:
        yield endpoint


def fetched_names(scratch: Path) -> set[str]:
    files = (file.relative_to(scratch) for file in scratch.rglob("*") if file.is_file())
    return {file.as_posix() for file in files if file.name[0] != "."}


def test_of_a_folder_only_what_is_read_is_downloaded(hub: HubEndpoint, tmp_path: Path) -> None:
    events: list[tuple[Phase, int, int | None]] = []
    source = HubSource("org/folder@main", endpoint=hub.url)
    assert hub.requests == []
    fetched = source.fetch(tmp_path, lambda *event: events.append(event))
    assert (fetched.files.format, fetched.revision) == (ModelFormat.HUGGING_FACE, COMMIT)
    assert fetched_names(tmp_path) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (tmp_path / "config.json").read_text() == "config.json" * 1000
    total = source.download_bytes()
    assert total == sum(file.stat().st_size for file in fetched.files.files)
    assert (Phase.DOWNLOAD, total, total) in events
    assert (source.text, source.name, source.stamp()) == ("hf:org/folder@main", "folder", None)


def test_a_branch_is_looked_up_once_and_a_commit_never(hub: HubEndpoint) -> None:
    for location in ("org/folder", "org/folder@main"):
        source = HubSource(location, endpoint=hub.url)
        assert (source.revision(), source.revision()) == (COMMIT, COMMIT)
    assert len(hub.requests) == 2
    assert HubSource(f"org/folder@{'a' * 40}", endpoint="http://127.0.0.1:9").revision() == "a" * 40


@pytest.mark.parametrize("location", ["org/folder@gone", "org/absent"])
def test_what_cannot_be_looked_up_is_logged(location: str, hub: HubEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    assert HubSource(location, endpoint=hub.url).revision() is None
    assert f"hf:{location} cannot be found" in caplog.text
    assert "is used as it is" in caplog.text


@pytest.mark.parametrize(
    ("location", "name", "fetched"),
    [
        ("org/one-gguf", "one-gguf", {"one.Q8_0.gguf"}),
        ("org/many-ggufs#a.gguf", "a", {"a.gguf"}),
        ("org/many-ggufs@v1#deep/c.gguf", "c", {"deep/c.gguf"}),
        ("org/many-ggufs#b-00002-of-00002.gguf", "b", {"b-00001-of-00002.gguf", "b-00002-of-00002.gguf"}),
    ],
)
def test_of_ggufs_one_is_downloaded(
    location: str, name: str, fetched: set[str], hub: HubEndpoint, tmp_path: Path
) -> None:
    source = HubSource(location, endpoint=hub.url)
    assert source.fetch(tmp_path, silent).files.format == ModelFormat.GGUF
    assert (source.name, fetched_names(tmp_path)) == (name, fetched)


PARTIAL = "one.Q8_0.gguf.partial"
WHOLE = b"one.Q8_0.gguf" * 1000


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_killed_download_goes_on(knows_ranges: bool, hub: HubEndpoint, tmp_path: Path) -> None:
    hub.line.knows_ranges = knows_ranges
    (tmp_path / ".commit").write_text(COMMIT)
    (tmp_path / PARTIAL).write_bytes(WHOLE[:5000])
    file = HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path, silent).files.path
    assert file.read_bytes() == WHOLE
    assert hub.line.ranges == ["bytes=5000-"]
    assert not (tmp_path / PARTIAL).exists()


def test_a_cut_connection_is_gone_on_with(hub: HubEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)  # less than a chunk is not written
    hub.line.cut_after = 6000
    file = HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path, silent).files.path
    assert (file.read_bytes(), hub.line.ranges) == (WHOLE, [None, "bytes=6000-"])


def test_what_is_here_of_the_same_commit_is_not_downloaded_again(hub: HubEndpoint, tmp_path: Path) -> None:
    for _ in range(2):
        HubSource("org/folder", endpoint=hub.url).fetch(tmp_path, silent)
    assert len(hub.line.ranges) == 3
    hub.commit = "f" * 40
    (tmp_path / "old.json").touch()
    HubSource("org/folder", endpoint=hub.url).fetch(tmp_path, silent)
    assert len(hub.line.ranges) == 6
    assert "old.json" not in fetched_names(tmp_path)


@pytest.mark.parametrize("left", [b"another file" * 500, WHOLE + b"more"])
def test_a_rest_that_is_no_part_of_the_file_is_forgotten(left: bytes, hub: HubEndpoint, tmp_path: Path) -> None:
    (tmp_path / ".commit").write_text(COMMIT)
    (tmp_path / PARTIAL).write_bytes(left)
    with pytest.raises(SourceError, match=r"is damaged|cannot be downloaded"):
        HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path, silent)
    assert HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path, silent).files.path.read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("org/absent", "hf:org/absent cannot be found: .*Repository Not Found"),
        ("org/folder@gone", "hf:org/folder@gone cannot be found: .*Revision Not Found"),
        ("org/no-model", "cannot be used: it is no model"),
        ("org/many-ggufs", r"several GGUF models; name one of a\.gguf, b-00001-of-00002\.gguf"),
        ("org/many-ggufs#d.gguf", r"has no file d\.gguf"),
        ("org/many-ggufs#../a.gguf", r"has no file \.\./a\.gguf"),
    ],
)
def test_what_is_not_there_is_one_line(location: str, message: str, hub: HubEndpoint, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"^[^\n]*{message}[^\n]*$"):
        HubSource(location, endpoint=hub.url).fetch(tmp_path, silent)


def test_a_file_with_another_hash_is_refused(repositories: dict[str, Path], tmp_path: Path) -> None:
    hub = HubEndpoint(repositories, {"one.Q8_0.gguf": "f" * 64})
    with hub.serving(), pytest.raises(SourceError, match=r"one\.Q8_0\.gguf is damaged: its sha256 is"):
        HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path, silent)


def test_names_that_lead_out_of_the_folder_are_not_fetched(repositories: dict[str, Path], tmp_path: Path) -> None:
    class HostileHub(HubEndpoint):
        def model_info(self, repository: str, folder: Path) -> dict[str, object]:
            names = ("../evil.gguf", "/evil.gguf", "..\\evil.gguf", "one.Q8_0.gguf")
            return {
                "id": repository,
                "sha": COMMIT,
                "siblings": [{"rfilename": name, "size": 13_000} for name in names],
            }

    (tmp_path / "in").mkdir()
    with HostileHub(repositories).serving() as hub:
        HubSource("org/one-gguf", endpoint=hub.url).fetch(tmp_path / "in", silent)
        with pytest.raises(SourceError, match="has no file"):
            HubSource("org/one-gguf#../evil.gguf", endpoint=hub.url).fetch(tmp_path / "in", silent)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_a_hub_that_does_not_answer_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_server.sources.hub._LOOK_UP_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent_hub:
        assert HubSource("org/folder", endpoint=f"http://127.0.0.1:{silent_hub.getsockname()[1]}").revision() is None
    assert "timed out" in caplog.text


def test_a_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^hf:org/folder cannot be found: [^\n]*onnect[^\n]*$"):
        HubSource("org/folder", endpoint="http://127.0.0.1:9").fetch(tmp_path, silent)


@pytest.mark.parametrize("location", ["", "name", "a/b/c", "org/name@", "org/name#config.json", "org/na me", "../a"])
def test_another_form_is_refused(location: str) -> None:
    with pytest.raises(SourceError, match="does not have the form org/name"):
        HubSource(location)
