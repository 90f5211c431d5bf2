"""A model as it was published: which format it has, and which files are it."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath

IR_FILE = "openvino_model.xml"
LANGUAGE_IR_FILE = "openvino_language_model.xml"  # in its place where images are read: it takes embeddings,
EMBEDDINGS_IR_FILE = "openvino_text_embeddings_model.xml"  # which this makes of token ids
CONFIG_FILE = "config.json"
_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_GRAPH_NAME = re.compile(r"openvino_(\w+_)?model\.(xml|bin)")  # optimum-intel's names; not its tokenizers
_METADATA_SUFFIXES = frozenset((".json", ".jinja", ".model", ".txt"))
_PICKLED_SUFFIXES = frozenset((".bin", ".pt", ".pth", ".ckpt"))


class ModelFormat(StrEnum):
    """The forms a model comes in."""

    GGUF = "gguf"
    OPENVINO_IR = "openvino-ir"
    HUGGING_FACE = "hugging-face"


class ModelFilesError(Exception):
    """A path holds no model of a known format, or not all of one."""

    code = "model_files_unusable"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model on disk.

    `path` is the GGUF file (of a split one the first part) or the folder; `files` is everything that is read of it.
    """

    format: ModelFormat
    path: Path
    files: tuple[Path, ...]

    @classmethod
    def find(cls, path: Path) -> "ModelFiles":
        """Look at a GGUF file or a folder. Raises ModelFilesError saying what is missing."""
        if path.is_dir():
            return _in_folder(path)
        if path.suffix != ".gguf":
            raise ModelFilesError(f"{path} is neither a folder nor a GGUF file")
        parts = gguf_parts(path)
        return cls(ModelFormat.GGUF, parts[0], parts)

    @property
    def name(self) -> str:
        """The name of the file or folder, without what only a file has: its suffix and the number of a part."""
        return self.path.name if self.path.is_dir() else gguf_stem(self.path.name)

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.stat().st_size for file in self.files)


def gguf_stem(file_name: str) -> str:
    """Return the name of a GGUF file without its suffix and, for a part of a split one, without its number."""
    split = _SPLIT_NAME.fullmatch(file_name)
    return split["stem"] if split else file_name.removesuffix(".gguf")


def gguf_part_names(file_name: str) -> list[str]:
    """List the names of all parts of a GGUF file, `name-00001-of-00003.gguf` and so on; of a whole one its own."""
    split = _SPLIT_NAME.fullmatch(file_name)
    if split is None:
        return [file_name]
    return [f"{split['stem']}-{part:05}-of-{split['count']}.gguf" for part in range(1, int(split["count"]) + 1)]


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """Return the parts of a GGUF file in order, whichever is named. Raises ModelFilesError for a missing one."""
    parts = tuple(path.with_name(name) for name in gguf_part_names(path.name))
    for part in parts:
        if not part.is_file():
            raise ModelFilesError(f"there is no file {part}")
    return parts


def select_files(names: Iterable[str]) -> tuple[ModelFormat, tuple[str, ...]]:
    """Tell from the names of the files in a folder which format it has and which of them are read, in order.

    Raises ModelFilesError.
    """
    present = sorted(name for name in names if name[0] != ".")
    if IR_FILE in present or LANGUAGE_IR_FILE in present:
        return ModelFormat.OPENVINO_IR, _metadata(present, *filter(_GRAPH_NAME.fullmatch, present))
    if CONFIG_FILE in present:
        return ModelFormat.HUGGING_FACE, _metadata(present, *_safetensors(present))
    models = sorted({gguf_part_names(name)[0] for name in present if name.endswith(".gguf")})
    if len(models) > 1:
        raise ModelFilesError(f"it has several GGUF models; name one of {', '.join(models)}")
    if models:
        return ModelFormat.GGUF, tuple(gguf_part_names(models[0]))
    raise ModelFilesError(f"it is no model: it has no {IR_FILE}, no {CONFIG_FILE} and no GGUF file")


def decoder_irs(names: Collection[str]) -> tuple[str, ...]:
    """Tell from the names of the files in a folder which graphs turn token ids into logits, last step first."""
    return (LANGUAGE_IR_FILE, EMBEDDINGS_IR_FILE) if LANGUAGE_IR_FILE in names else (IR_FILE,)


def weights_name(ir: str) -> str:
    """Return the name of the file beside an IR that holds its weights."""
    return str(PurePath(ir).with_suffix(".bin"))


def _in_folder(folder: Path) -> ModelFiles:
    try:
        model_format, names = select_files(file.name for file in folder.iterdir() if file.is_file())
    except ModelFilesError as exc:
        raise ModelFilesError(f"{folder} cannot be used: {exc}") from exc
    if model_format == ModelFormat.GGUF:
        return ModelFiles.find(folder / names[0])
    return ModelFiles(model_format, folder, tuple(folder / name for name in names))


def _metadata(present: list[str], *weights: str) -> tuple[str, ...]:
    return tuple(name for name in present if name in weights or PurePath(name).suffix in _METADATA_SUFFIXES)


def _safetensors(present: list[str]) -> list[str]:
    """List the weights. Refuse those that can only be unpickled: that runs code out of the model folder."""
    weights = [name for name in present if name.startswith("model") and name.endswith(".safetensors")]
    if not weights:
        pickles = [name for name in present if PurePath(name).suffix in _PICKLED_SUFFIXES]
        found = f"only {pickles[0]}, a pickle, which could run code" if pickles else "no weights"
        raise ModelFilesError(f"it has {found}; weights are read from model.safetensors and its parts")
    return weights
