"""How large the parts of a checkpoint are, by the headers of its safetensors files: no weight is read."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.building import BuildError
from engines.trtllm.safetensors import read_header

_OTHER_PARTS = ("visual.", "vision_", "vision_model.", "vision_tower.", "mlp1.", "multi_modal_projector.", "audio_")
_EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "tok_embeddings.weight", "wte.weight")
_OUTPUTS = ("lm_head.weight", "output_layer.weight", "output.weight")


@dataclass(frozen=True, slots=True)
class Part:
    """Some tensors: how many numbers they hold, and the bytes these take in the checkpoint."""

    num_parameters: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Part") -> "Part":
        return Part(self.num_parameters + other.num_parameters, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class Weights:
    """The language model of a checkpoint. A vision tower is not part of its engine and left out."""

    embedding: Part
    layers: Part
    output: Part

    @property
    def num_parameters(self) -> int:
        """All of the checkpoint's language model; an output layer that is the embedding again counts once."""
        return self.embedding.num_parameters + self.layers.num_parameters + self.output.num_parameters


def read_weights(folder: Path) -> Weights:
    """Add up the tensors of a folder's safetensors files. Raises BuildError for a file that is none."""
    embedding, layers, output = Part(), Part(), Part()
    for file in sorted(folder.glob("*.safetensors")):
        for name, part in _tensors(file):
            if _is_of_another_part(name):
                continue
            if name.endswith(_EMBEDDINGS):
                embedding += part
            elif name.endswith(_OUTPUTS) and ".layers." not in name:
                output += part
            else:
                layers += part
    return Weights(embedding, layers, output)


def _is_of_another_part(name: str) -> bool:
    bare = name.removeprefix("model.").removeprefix("transformer.")
    return bare.startswith(_OTHER_PARTS)


def _tensors(file: Path) -> Iterator[tuple[str, Part]]:
    try:
        header = read_header(file)
    except (OSError, ValueError) as exc:
        raise BuildError(f"{file} is no safetensors file: {exc}") from exc
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield name, Part(math.prod(entry["shape"]), end - begin)
