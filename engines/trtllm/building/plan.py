"""The commands that make an engine, decided before anything runs: which scripts, with which arguments.

Source of trtllm-build's arguments: tensorrt_llm/commands/build.py and plugin/plugin.py, release 1.2.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from engines.build_options import EngineOptions
from engines.building import BuildError
from engines.trtllm.building.quantisation import QUANTISATIONS, Quantisation
from engines.trtllm.building.recipes import Recipe, find_recipe
from engines.trtllm.checkpoint import Checkpoint

QUANTIZE_SCRIPT = "quantization/quantize.py"


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things lie: the vendor's examples, the checkpoint on the way, and the engine."""

    examples: Path
    converted: Path
    engine: Path


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments."""

    program: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """As one would type it, an option per line."""
        lines = [shlex.quote(self.program)]
        for argument in self.arguments:
            quoted = shlex.quote(argument)
            if argument.startswith("--"):
                lines.append(quoted)
            else:
                lines[-1] += f" {quoted}"
        return " \\\n    ".join(lines)


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """An engine of a checkpoint, as its recipe and the options have it. Raises BuildError where they do not agree."""

    checkpoint: Checkpoint
    recipe: Recipe
    options: EngineOptions

    @classmethod
    def make(cls, path: Path, options: EngineOptions) -> "EnginePlan":
        """Find the recipe of a checkpoint and check the options against it."""
        checkpoint = Checkpoint(path)
        plan = cls(checkpoint, find_recipe(checkpoint), options)
        plan._check()
        return plan

    @property
    def quantisation(self) -> Quantisation:
        """How the weights are stored."""
        return QUANTISATIONS[self.options.quantization]

    @property
    def dtype(self) -> str:
        """Of what is not quantised."""
        if self.options.dtype != "auto":
            return self.options.dtype
        return "float16" if self.checkpoint.dtype == "float32" else self.checkpoint.dtype

    @property
    def kv_cache_dtype(self) -> str:
        """Of keys and values; "auto" is the dtype."""
        asked = self.options.kv_cache_dtype
        return self.quantisation.kv_cache_dtype if asked == "auto" else asked

    @property
    def max_sequence_length(self) -> int:
        """Prompt and answer together, in tokens."""
        ceiling = self.checkpoint.max_sequence_length
        ceiling = min(ceiling, self.recipe.max_sequence_length or ceiling)
        return self.options.max_sequence_length or ceiling

    @property
    def max_multimodal_len(self) -> int:
        """Rows that the prompt-embedding tables of a whole batch may have: one image per sequence unless asked."""
        if self.options.max_multimodal_len is not None:
            return self.options.max_multimodal_len
        return self.options.max_batch_size * self.recipe.image_rows

    def commands(self, folders: Folders, *, python: str, build: str, workers: int) -> tuple[Command, Command]:
        """Return the command that writes TensorRT-LLM's own checkpoint, and the one that builds the engine of it."""
        convert = self._quantise(folders) if self._is_calibrated else self._convert(folders, workers)
        return Command(python, convert), Command(build, (*self._build(folders), "--workers", str(workers)))

    @property
    def _is_calibrated(self) -> bool:
        return self.quantisation.convert is None or self.kv_cache_dtype != "auto"

    def _convert(self, folders: Folders, workers: int) -> tuple[str, ...]:
        flags, options = self.recipe.flags, self.options
        arguments = [
            *(str(folders.examples / self.recipe.script), flags.model_dir, str(self.checkpoint.path)),
            *(flags.output_dir, str(folders.converted), flags.dtype, self.dtype),
            *(flags.tensor_parallel_size, str(options.tensor_parallel_size)),
        ]
        if flags.pipeline_parallel_size is not None:
            arguments += (flags.pipeline_parallel_size, str(options.pipeline_parallel_size))
        if flags.workers is not None:
            arguments += (flags.workers, str(workers))
        return (*arguments, *self.recipe.convert_arguments, *(self.quantisation.convert or ()))

    def _quantise(self, folders: Folders) -> tuple[str, ...]:
        options = self.options
        arguments = [
            *(str(folders.examples / QUANTIZE_SCRIPT), "--model_dir", str(self.checkpoint.path)),
            *("--output_dir", str(folders.converted), "--dtype", self.dtype, "--qformat", self.quantisation.qformat),
            *("--tp_size", str(options.tensor_parallel_size), "--pp_size", str(options.pipeline_parallel_size)),
            *self.quantisation.calibration,
        ]
        if self.kv_cache_dtype != "auto":
            arguments += ("--kv_cache_dtype", self.kv_cache_dtype)
        if options.calibration_dataset is not None:
            arguments += ("--calib_dataset", options.calibration_dataset)
        return tuple(arguments)

    def _build(self, folders: Folders) -> tuple[str, ...]:
        options = self.options
        arguments = [
            *("--checkpoint_dir", str(folders.converted), "--output_dir", str(folders.engine)),
            *("--max_batch_size", str(options.max_batch_size), "--max_num_tokens", str(options.max_num_tokens)),
            *("--max_seq_len", str(self.max_sequence_length)),
            *("--max_input_len", str(self.max_sequence_length - 1)),  # 1024 unless told, whatever the length
            *("--max_beam_width", "1", "--kv_cache_type", "paged", "--remove_input_padding", "enable"),
            *("--use_paged_context_fmha", "enable"),  # reuse of KV blocks, prefill in chunks
            *self.quantisation.build,
        ]
        if self.max_multimodal_len:
            arguments += ("--max_multimodal_len", str(self.max_multimodal_len))
        return (*arguments, *self.recipe.build_arguments, *self._logits(), *self._drafts(), *self._lora())

    def _logits(self) -> tuple[str, ...]:
        if not self.options.gather_logits:
            return ()
        # with drafts there are no logits of the prompt
        return ("--gather_all_token_logits",) if self.options.lookahead is None else ("--gather_generation_logits",)

    def _drafts(self) -> tuple[str, ...]:
        lookahead = self.options.lookahead
        if lookahead is None:
            return ()
        return ("--speculative_decoding_mode", "lookahead_decoding", "--max_draft_len", str(lookahead.max_draft_len))

    def _lora(self) -> tuple[str, ...]:
        lora = self.options.lora
        if not lora.wanted:
            return ()
        folders = ("--lora_dir", *lora.folders) if lora.folders else ()
        modules = ("--lora_target_modules", *lora.target_modules) if lora.target_modules else ()
        return ("--lora_plugin", "auto", *folders, *modules, "--max_lora_rank", str(lora.max_rank))

    def _check(self) -> None:
        options, recipe = self.options, self.recipe
        known = ("none", *recipe.quantisations)
        _refuse(
            options.quantization not in known,
            f"{recipe.family} has no recipe for {options.quantization}; it has {', '.join(known)}",
        )
        _refuse(
            self._is_calibrated and all(QUANTISATIONS[name].convert is not None for name in known),
            f"{recipe.family} is not known to quantize.py, which a KV cache in {self.kv_cache_dtype} needs",
        )
        _refuse(
            recipe.flags.pipeline_parallel_size is None and options.pipeline_parallel_size > 1,
            f"{recipe.family} runs without pipeline parallelism: leave --pp out",
        )
        self._check_checkpoint()
        self._check_length()

    def _check_checkpoint(self) -> None:
        options, method = self.options, self.checkpoint.quantisation
        heads = self.checkpoint.num_heads
        _refuse(
            heads % options.tensor_parallel_size != 0,
            f"--tp {options.tensor_parallel_size} does not divide the {heads} attention heads",
        )
        _refuse(
            method is not None and method not in self.recipe.prequantised,
            f"the checkpoint is quantised already ({method}), which makes no engine; use the checkpoint driver: "
            f"llm-server serve {self.checkpoint.path} --engine trtllm",
        )
        _refuse(
            self._is_calibrated and "mpt" in str(self.checkpoint.path),
            f'quantize.py takes a path with "mpt" in it for a model of that name: rename {self.checkpoint.path}',
        )
        _refuse(
            method is not None and options.quantization != "none",
            f"the checkpoint is quantised already ({method}): leave --quantization out",
        )

    def _check_length(self) -> None:
        asked, ceiling = self.options.max_sequence_length, self.checkpoint.max_sequence_length
        ceiling = min(ceiling, self.recipe.max_sequence_length or ceiling)
        _refuse(
            (asked or 0) > ceiling, f"--max-seq-len {asked} is more than the {ceiling} tokens of {self.recipe.family}"
        )
        _refuse(
            self.max_multimodal_len > 0 and not self.recipe.image_rows,
            f"{self.recipe.family} is a text model: leave --max-multimodal-len out",
        )


def _refuse(condition: bool, message: str) -> None:
    if condition:
        raise BuildError(message)
