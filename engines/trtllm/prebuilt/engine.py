"""What the folder of a prebuilt TensorRT engine says about itself: the config.json that trtllm-build wrote.

Source of names and defaults: `GptJsonConfig`, cpp/tensorrt_llm/runtime/gptJsonConfig.cpp, which reads the same file;
`SpeculativeDecodingMode`, tensorrt_llm/models/modeling_utils.py, release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engines.trtllm.checkpoint import DTYPE_BYTES, is_engine_config, read_json
from engines.trtllm.errors import TensorRTLLMError

CONFIG_FILE = "config.json"
_DEFAULT_GPUS_PER_NODE = 8


class SpeculativeMode(StrEnum):
    """How an engine was built to guess ahead, by the names that trtllm-build takes."""

    NONE = "none"
    DRAFT_TOKENS_EXTERNAL = "draft_tokens_external"
    MEDUSA = "medusa"
    LOOKAHEAD_DECODING = "lookahead_decoding"
    EXPLICIT_DRAFT_TOKENS = "explicit_draft_tokens"
    EAGLE = "eagle"


@dataclass(frozen=True, slots=True)
class PrebuiltEngine:
    """An engine folder of trtllm-build. Sizes are of the whole model, not of one rank; limits are in tokens."""

    path: Path
    version: str
    """Release of TensorRT-LLM that built it, the only one that serves it."""
    architecture: str
    dtype: str
    quantisation: str | None
    kv_quantisation: str | None
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    context_parallel_size: int
    gpus_per_node: int
    max_batch_size: int
    max_sequence_length: int
    max_input_length: int
    max_num_tokens: int
    max_beam_width: int
    max_prompt_embedding_table_size: int
    """Rows that the prompt embedding tables of a whole batch may have; 0 takes no images."""
    use_mrope: bool
    gather_context_logits: bool
    gather_generation_logits: bool
    speculative_mode: SpeculativeMode
    max_draft_len: int
    paged_kv_cache: bool
    use_paged_context_fmha: bool
    """Needed for the reuse of KV blocks, and for prefill in chunks."""
    tokens_per_block: int
    lora_plugin: bool
    max_lora_rank: int
    lora_target_modules: tuple[str, ...]
    rank_files: tuple[Path, ...]

    @classmethod
    def read(cls, path: Path) -> "PrebuiltEngine":
        """Read an engine folder. Raises TensorRTLLMError naming the key or the file that is missing."""
        document = _Section.of(path)
        model, build = document.section("pretrained_config"), document.section("build_config")
        mapping, plugins = model.section("mapping"), build.section("plugin_config")
        quantisation, lora = model.section("quantization"), build.section("lora_config")
        hidden_size, num_heads = model.number("hidden_size"), model.number("num_attention_heads")
        sizes = (mapping.number("tp_size"), mapping.number("pp_size", 1), mapping.number("cp_size", 1))
        return cls(
            path=path,
            version=document.text("version"),
            architecture=model.text("architecture"),
            dtype=model.dtype("dtype"),
            quantisation=quantisation.optional_text("quant_algo"),
            kv_quantisation=quantisation.optional_text("kv_cache_quant_algo"),
            vocab_size=model.number("vocab_size"),
            hidden_size=hidden_size,
            num_layers=model.number("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=model.number("num_key_value_heads", num_heads),
            head_size=model.number("head_size", hidden_size // num_heads),
            tensor_parallel_size=sizes[0],
            pipeline_parallel_size=sizes[1],
            context_parallel_size=sizes[2],
            gpus_per_node=mapping.number("gpus_per_node", _DEFAULT_GPUS_PER_NODE),
            max_batch_size=build.number("max_batch_size"),
            max_sequence_length=build.number("max_seq_len"),
            max_input_length=build.number("max_input_len"),
            max_num_tokens=build.number("max_num_tokens"),
            max_beam_width=build.number("max_beam_width"),
            max_prompt_embedding_table_size=build.number("max_prompt_embedding_table_size", 0),
            use_mrope=build.flag("use_mrope"),
            gather_context_logits=build.flag("gather_context_logits"),
            gather_generation_logits=build.flag("gather_generation_logits"),
            speculative_mode=_speculative_mode(build),
            max_draft_len=build.number("max_draft_len", 0),
            paged_kv_cache=plugins.flag("paged_kv_cache") or build.optional_text("kv_cache_type") in ("PAGED", "paged"),
            use_paged_context_fmha=plugins.flag("use_paged_context_fmha"),
            tokens_per_block=plugins.number("tokens_per_block"),
            lora_plugin=plugins.values.get("lora_plugin") not in (None, False),
            max_lora_rank=lora.number("max_lora_rank", 0),
            lora_target_modules=lora.texts("lora_target_modules"),
            rank_files=_rank_files(path, sizes[0] * sizes[1] * sizes[2]),
        )

    @property
    def world_size(self) -> int:
        """How many GPUs serve it."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.context_parallel_size


def is_prebuilt_engine(path: Path) -> bool:
    """Tell an engine folder from a checkpoint, by the parts of its config.json."""
    try:
        return is_engine_config(read_json(path / CONFIG_FILE))
    except TensorRTLLMError:
        return False


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of a config.json that says which of its keys is missing or wrong."""

    values: Mapping[str, Any]
    file: Path
    prefix: str = ""

    @classmethod
    def of(cls, path: Path) -> "_Section":
        file = path / CONFIG_FILE
        return cls(read_json(file, "TensorRT engine"), file)

    def section(self, name: str) -> "_Section":
        return _Section(self._typed(name, dict), self.file, f"{self.prefix}{name}.")

    def number(self, name: str, default: int | None = None) -> int:
        """Return a number, which is at least 1 unless its default is 0."""
        value = int(self._typed(name, int, default))
        if value < (0 if default == 0 else 1):
            raise TensorRTLLMError(f"{self.file}: {self.prefix}{name} cannot be {value}")
        return value

    def dtype(self, name: str) -> str:
        value = self.text(name)
        if value not in DTYPE_BYTES:
            raise TensorRTLLMError(f"{self.file}: {self.prefix}{name} {value!r} is not one of {', '.join(DTYPE_BYTES)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(str, self._typed(name, list, [])))

    def text(self, name: str) -> str:
        return str(self._typed(name, str))

    def optional_text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value)

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name))

    def _typed(self, name: str, kind: type, default: Any = None) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, kind) or isinstance(value, bool):
            words = {int: "number", str: "text", dict: "object", list: "list"}
            raise TensorRTLLMError(f"{self.file} has no {words[kind]} {self.prefix}{name}")
        return value


def _speculative_mode(build: _Section) -> SpeculativeMode:
    """The file has a flag of one bit, in the order of the names; null and 0 are none."""
    flag = build.number("speculative_decoding_mode", 0)
    for bit, mode in enumerate(SpeculativeMode):
        if flag in (0, 1 << bit):
            return mode
    raise TensorRTLLMError(f"{build.file} has an unknown {build.prefix}speculative_decoding_mode {flag}")


def _rank_files(path: Path, world_size: int) -> tuple[Path, ...]:
    files = tuple(path / f"rank{rank}.engine" for rank in range(world_size))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise TensorRTLLMError(f"{path} lacks {', '.join(missing)} of an engine for {world_size} GPUs")
    return files
