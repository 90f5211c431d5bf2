"""What a TensorRT engine is built for: decided when it is built, and fixed from then on."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

QuantisationName: TypeAlias = Literal["none", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "int8_sq", "fp8", "nvfp4"]
KVCacheDtype: TypeAlias = Literal["auto", "int8", "fp8"]


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Lookahead decoding: so many n-grams in flight, of so many tokens, so many of them verified per step."""

    window: int
    ngram: int
    verification: int

    def __post_init__(self) -> None:
        _check(
            self.window >= 1 and self.ngram >= 1 and self.verification >= 0,
            "lookahead needs sizes of at least 1, 1 and 0",
        )

    @property
    def max_draft_len(self) -> int:
        """Tokens guessed per step. Source: examples/lookahead/README.md of TensorRT-LLM 1.2."""
        return max(self.ngram - 2, 0) + (self.window - 1 + self.verification) * (self.ngram - 1)


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Which LoRA adapters an engine can take later: like those in `folders`, or in `target_modules`, up to a rank."""

    folders: tuple[str, ...] = ()
    target_modules: tuple[str, ...] = ()
    max_rank: int = 64

    def __post_init__(self) -> None:
        _check(self.max_rank >= 1, "lora_max_rank must be at least 1")

    @property
    def wanted(self) -> bool:
        """Whether the engine takes adapters at all."""
        return bool(self.folders or self.target_modules)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What decides about an engine, and is recorded in its engine.json. Raises ValueError naming the option."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    dtype: Literal["auto", "float16", "bfloat16"] = "auto"
    """Of weights and activations that are not quantised; "auto" is the checkpoint's, float16 for one in float32."""
    quantization: QuantisationName = "none"
    kv_cache_dtype: KVCacheDtype = "auto"
    """"auto" is what the quantisation brings along: fp8 with fp8 and nvfp4, else the dtype."""
    max_batch_size: int = 256
    max_sequence_length: int | None = None
    """Prompt and answer together, in tokens; None is the model's context, or what its recipe can do of it."""
    max_num_tokens: int = 8192
    max_multimodal_len: int | None = None
    """Image rows of a whole batch; None is the batch size times those of one image, 0 for a text model."""
    lookahead: Lookahead | None = None
    gather_logits: bool = False
    """Serve logprobs, of the prompt too where there is no lookahead."""
    lora: LoraOptions = field(default_factory=LoraOptions)
    calibration_dataset: str | None = None
    """What is read to calibrate a quantisation: a folder, or a dataset's name on the Hugging Face Hub."""

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "max_batch_size", "max_num_tokens"):
            _check(getattr(self, name) >= 1, f"{name} must be at least 1")
        _check((self.max_sequence_length or 2) >= 2, "max_sequence_length must be at least 2")
        _check((self.max_multimodal_len or 0) >= 0, "max_multimodal_len must be at least 0")

    def as_document(self) -> Mapping[str, object]:
        """Return the options as engine.json keeps them."""
        document: Mapping[str, object] = json.loads(json.dumps(asdict(self)))
        return document

    @property
    def world_size(self) -> int:
        """How many GPUs serve the engine, and how many files it has."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


@dataclass(frozen=True, slots=True)
class BuildMachine:
    """Where an engine is built; the engine does not depend on it, but for the kind of GPU."""

    examples: Path = Path("/app/tensorrt_llm/examples")
    """The `examples` folder of TensorRT-LLM; this is its place in the release container."""
    workers: int = 1
    """Ranks that are converted and built at the same time."""
    gpu_memory_gib: float | None = None
    """Of each GPU; None asks nvidia-smi."""

    def __post_init__(self) -> None:
        _check(self.workers >= 1, "workers must be at least 1")
        _check(self.gpu_memory_gib is None or self.gpu_memory_gib > 0, "gpu_memory_gib must be above 0")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
