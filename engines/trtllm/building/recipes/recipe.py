"""What a recipe says: how TensorRT-LLM's own scripts make an engine of one family. Data, no code.

Everything is read in the vendor's repository, release 1.2: the scripts' own argument parsers below examples/, the
README beside each, and `MODEL_MAP` in tensorrt_llm/models/__init__.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from engines.build_options import QuantisationName

Quantisations: TypeAlias = tuple[QuantisationName, ...]


@dataclass(frozen=True, slots=True)
class ConvertFlags:
    """What a family's convert_checkpoint.py calls its arguments; None is an argument it does not have."""

    model_dir: str = "--model_dir"
    output_dir: str = "--output_dir"
    dtype: str = "--dtype"
    tensor_parallel_size: str = "--tp_size"
    pipeline_parallel_size: str | None = "--pp_size"
    workers: str | None = "--workers"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the engines of one family are made.

    `architectures` are those of config.json; where a model with images keeps its language model apart, both names with
    a slash between them. `where` are entries of config.json that tell models with the same architecture apart.
    `script` lies below the examples folder; `convert_arguments` and `build_arguments` are given to it and to
    trtllm-build beside what every family gets. `image_rows` are the prompt-embedding rows of one image, 0 for text.
    """

    family: str
    architectures: tuple[str, ...]
    script: str
    quantisations: Quantisations = ()
    flags: ConvertFlags = ConvertFlags()
    where: Mapping[str, object] = field(default_factory=dict)
    convert_arguments: tuple[str, ...] = ()
    build_arguments: tuple[str, ...] = ()
    prequantised: tuple[str, ...] = ()
    """Methods of `quantization_config` that the script takes over."""
    max_sequence_length: int | None = None
    image_rows: int = 0
    limits: tuple[str, ...] = ()
    """What the vendor's pages say does not work, or has not been tried; shown with each plan."""
