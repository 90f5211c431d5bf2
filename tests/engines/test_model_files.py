"""What a file or folder is can be told by names alone, and what cannot be used says why."""

from pathlib import Path

import pytest

from engines.model_files import ModelFiles, ModelFilesError, ModelFormat, gguf_stem, select_files

SPLIT = [f"tiny-q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)]


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"1234")
    return folder


@pytest.mark.parametrize(
    ("names", "model_format", "read"),
    [
        (["a.gguf", "README.md"], ModelFormat.GGUF, ["a.gguf"]),
        (SPLIT, ModelFormat.GGUF, SPLIT),
        (
            ["config.json", "model.safetensors", "tokenizer.json", "pytorch_model.bin", "photo.png", ".gitattributes"],
            ModelFormat.HUGGING_FACE,
            ["config.json", "model.safetensors", "tokenizer.json"],
        ),
        (
            ["config.json", "openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "model.safetensors"],
            ModelFormat.OPENVINO_IR,
            ["config.json", "openvino_model.bin", "openvino_model.xml"],
        ),
        (
            [
                "config.json",
                "openvino_detokenizer.xml",
                "openvino_language_model.bin",
                "openvino_language_model.xml",
                "openvino_vision_embeddings_merger_model.bin",
                "openvino_vision_embeddings_merger_model.xml",
                "preprocessor_config.json",
            ],
            ModelFormat.OPENVINO_IR,
            [
                "config.json",
                "openvino_language_model.bin",
                "openvino_language_model.xml",
                "openvino_vision_embeddings_merger_model.bin",
                "openvino_vision_embeddings_merger_model.xml",
                "preprocessor_config.json",
            ],
        ),
    ],
)
def test_names_tell_the_format_and_what_is_read(names: list[str], model_format: ModelFormat, read: list[str]) -> None:
    assert select_files(reversed(names)) == (model_format, tuple(read))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "it is no model"),
        (["notes.txt"], "it is no model"),
        (["a.gguf", "b.gguf"], r"several GGUF models; name one of a\.gguf, b\.gguf"),
        (["config.json"], "it has no weights"),
        (["config.json", "pytorch_model.bin"], r"only pytorch_model\.bin, a pickle, which could run code"),
        (["config.json", "adapter_model.safetensors"], "it has no weights"),
    ],
)
def test_what_cannot_be_used_says_why(names: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=message):
        ModelFiles.find(write(tmp_path / "model", *names))


@pytest.mark.parametrize("named", [*SPLIT, "."])
def test_any_part_or_the_folder_names_a_split_model(named: str, tmp_path: Path) -> None:
    model = ModelFiles.find(write(tmp_path, *SPLIT) / named)
    assert model == ModelFiles(ModelFormat.GGUF, tmp_path / SPLIT[0], tuple(tmp_path / part for part in SPLIT))
    assert (model.name, model.size_bytes) == ("tiny-q8_0", 12)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"there is no file .*tiny-q8_0-00002-of-00003\.gguf"):
        ModelFiles.find(write(tmp_path, SPLIT[0], SPLIT[2]) / SPLIT[0])


def test_names_lose_what_only_files_have() -> None:
    assert [gguf_stem(name) for name in ("a.b.gguf", "a-00001-of-00002.gguf")] == ["a.b", "a"]
