"""An engine folder is whole under its final name, or refused with the file that is wrong."""

import json
import time
from pathlib import Path

import pytest

from engines.folder import (
    EngineDescription,
    EngineFolder,
    EngineFolderError,
    describe_folder,
    remove_stale_folders,
    scratch_folder,
    staged_folder,
)

DESCRIPTION = EngineDescription(
    engine="openvino",
    model_name="Tiny",
    architecture="llama",
    precision="f16",
    vocab_size=300,
    max_sequence_length=512,
    end_token_ids=(2, 0),
    eos_text="<|im_end|>",
    bos_token_id=None,
    bos_text=None,
    prompt_starts_with_bos=False,
    source="gguf:/tiny.gguf",
    source_sha256="0" * 64,
    builder="tests",
    versions={"openvino": "1"},
)
CONTENTS = {
    "openvino_model.xml": b"<net/>",
    "openvino_model.bin": bytes(17 * 2**20),  # too large to be hashed at every start
    "tokenizer.json": b"{}",
    "generation_config.json": b'{"temperature": 0.5}',
    "chat_template.jinja": "{{ messages }} é".encode(),
}


def write_folder(path: Path) -> EngineFolder:
    path.mkdir(exist_ok=True)
    for name, content in CONTENTS.items():
        (path / name).write_bytes(content)
    return describe_folder(path, DESCRIPTION)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny").path


def test_a_folder_loads_as_it_was_described(folder: Path) -> None:
    loaded = EngineFolder.load(folder, verify=True)
    assert loaded.description == DESCRIPTION
    assert loaded.files.keys() == CONTENTS.keys()
    assert loaded.chat_template == "{{ messages }} é"
    assert loaded.generation_config() == {"temperature": 0.5}
    assert (loaded.model_path, loaded.tokenizer_path) == (folder / "openvino_model.xml", folder / "tokenizer.json")


def test_loading_is_quick(folder: Path) -> None:
    start = time.perf_counter()
    EngineFolder.load(folder)
    assert time.perf_counter() - start < 0.3


@pytest.mark.parametrize("name", ["engine.json", *CONTENTS])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(EngineFolderError, match=f"{name} is missing"):
        EngineFolder.load(folder)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_truncated_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes(CONTENTS[name][:-1])
    with pytest.raises(EngineFolderError, match=f"{name} has {len(CONTENTS[name]) - 1} bytes instead of"):
        EngineFolder.load(folder)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_changed_file_is_named_at_once_if_small_else_on_request(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"#" + CONTENTS[name][1:])
    is_large = name == "openvino_model.bin"
    if is_large:
        EngineFolder.load(folder)
    with pytest.raises(EngineFolderError, match=f"{name} has changed"):
        EngineFolder.load(folder, verify=is_large)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "format version 99; this server reads 1"),
        ({"engine": "abacus"}, "engine 'abacus'; known engines: openvino"),
        ({"files": {}}, "has no openvino_model.xml, openvino_model.bin, tokenizer.json"),
        ({"files": {"a": {"size": 1}}}, "not a valid engine description"),
        ({"end_token_ids": None}, "not a valid engine description"),
    ],
)
def test_another_description_is_refused(change: dict[str, object], message: str, folder: Path) -> None:
    file = folder / "engine.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(EngineFolderError, match=message):
        EngineFolder.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_a_damaged_description_is_refused(text: str, folder: Path) -> None:
    (folder / "engine.json").write_text(text, encoding="utf-8")
    with pytest.raises(EngineFolderError, match=r"engine\.json is not a valid engine description"):
        EngineFolder.load(folder)


@pytest.mark.parametrize("name", ["nowhere", "a_file"])
def test_what_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    with pytest.raises(EngineFolderError, match=r"engine\.json"):
        EngineFolder.load(tmp_path / name)


def test_an_unfinished_folder_cannot_be_described(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(EngineFolderError, match=r"has no openvino_model\.xml"):
        describe_folder(tmp_path, DESCRIPTION)


def test_a_staged_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "engines" / "tiny"
    for content in ("old", "new"):
        with staged_folder(final) as staging:
            (staging / "content").write_text(content)
            assert not final.exists() or (final / "content").read_text() == "old"
        assert (final / "content").read_text() == content
        assert list(final.parent.iterdir()) == [final]


def test_a_failed_build_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    final = tmp_path / "tiny"
    write_folder(final)

    def fail() -> None:
        with staged_folder(final) as staging:
            (staging / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == [final]
    EngineFolder.load(final, verify=True)


def test_only_left_overs_of_the_same_engine_are_stale(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "tiny.v2") as other, scratch_folder(tmp_path / "tiny") as stale:
        kept = {other, tmp_path / "tiny", tmp_path / ".tiny.lock"}
        for path in kept - {other}:
            path.mkdir()
        remove_stale_folders(tmp_path / "tiny")
        assert set(tmp_path.iterdir()) == kept
        assert not stale.exists()
