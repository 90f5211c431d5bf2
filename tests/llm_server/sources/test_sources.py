"""Sources are understood or refused before anything is fetched."""

from pathlib import Path

import pytest

from engines.progress import silent
from llm_server.sources import SourceError, parse_source
from llm_server.sources.catalog import CATALOG, DEFAULT_MODEL
from llm_server.sources.local import GgufFileSource
from llm_server.sources.pypi import PypiSource


def test_every_model_of_the_catalogue_parses_to_itself() -> None:
    for model in CATALOG.values():
        source = parse_source(model.source)
        assert source.text == model.source
        assert source.sha256(silent) == model.file_sha256


def test_the_default_model_is_in_the_catalogue() -> None:
    source = parse_source(CATALOG[DEFAULT_MODEL].source)
    assert isinstance(source, PypiSource)
    assert source.name == "SmolLM2-135M-Instruct.Q4_1"


@pytest.mark.parametrize("form", ["{path}", "gguf:{path}"])
def test_a_local_file_is_used_where_it_lies(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"abc")
    source = parse_source(form.format(path=path))
    assert isinstance(source, GgufFileSource)
    assert (source.text, source.name) == (f"gguf:{path}", "a")
    assert source.sha256(silent) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert source.fetch(tmp_path / "unused", silent).files.path == path


@pytest.mark.parametrize("text", ["", "llama", "pypi:", "ftp://host/a.gguf"])
def test_other_texts_are_refused_with_the_known_kinds(text: str) -> None:
    with pytest.raises(SourceError, match="starts with one of pypi:, hf:, gguf:, folder:"):
        parse_source(text)


@pytest.mark.parametrize("text", ["/nowhere/a.gguf", "a.gguf", "./a", "org/a.gguf", "a/b/c"])
def test_a_path_where_nothing_is_says_so(text: str) -> None:
    with pytest.raises(SourceError, match=f"^there is no file or folder {text}$"):
        parse_source(text)


@pytest.mark.parametrize("location", ["name", "name==1", "name#file", "name>=1#file", "-r==1#file", "a b==1#file"])
def test_a_package_needs_exact_version_and_file(location: str) -> None:
    with pytest.raises(SourceError, match="package==version#path"):
        parse_source(f"pypi:{location}")


def test_a_local_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no file"):
        parse_source(f"gguf:{tmp_path}/a.gguf")
