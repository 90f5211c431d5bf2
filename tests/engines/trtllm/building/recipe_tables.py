"""The tables of docs/trtllm-engines.md: `python -m tests.engines.trtllm.building.recipe_tables` writes them anew."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from engines.build_options import EngineOptions
from engines.trtllm.building.plan import Command, EnginePlan, Folders
from engines.trtllm.building.recipes import RECIPES, Recipe
from tests.engines.trtllm.building.checkpoints import write_weights
from tests.engines.trtllm.building.families import FAMILIES

PAGE = Path("docs/trtllm-engines.md")
RECIPES_MARKS = ("<!-- recipes: python -m tests.engines.trtllm.building.recipe_tables -->\n", "<!-- end of recipes -->")
FLAGS_MARKS = ("<!-- flags: python -m tests.engines.trtllm.building.recipe_tables -->\n", "<!-- end of flags -->")
OF_FOLDERS = ("--model_dir", "--output_dir", "--checkpoint_dir")


@dataclass(frozen=True, slots=True)
class Documented:
    """A command pair in the vendor's repository, and the same engine asked of this server."""

    title: str
    page: str
    family: str
    options: Mapping[str, Any]
    workers: int
    vendor: Mapping[str, str]


VENDORS = (
    Documented(
        "Llama in FP8 on two GPUs",
        'examples/models/core/llama/README.md, "FP8 Post-Training Quantization"',
        "llama-3.1",
        {"quantization": "fp8", "tensor_parallel_size": 2},
        2,
        {
            "--dtype": "float16",
            "--qformat": "fp8",
            "--kv_cache_dtype": "fp8",
            "--calib_size": "512",
            "--tp_size": "2",
            "--gemm_plugin": "auto",
            "--workers": "2",
        },
    ),
    Documented(
        "Gemma 2",
        'examples/models/core/gemma/README.md, "Run Gemma 2"',
        "gemma-2",
        {"max_batch_size": 8, "max_sequence_length": 3100},
        1,
        {
            "--ckpt-type": "hf",
            "--dtype": "bfloat16",
            "--world-size": "1",
            "--gemm_plugin": "auto",
            "--max_batch_size": "8",
            "--max_input_len": "3000",
            "--max_seq_len": "3100",
        },
    ),
    Documented(
        "Qwen2-VL",
        'examples/models/core/multimodal/README.md, "Qwen2-VL"',
        "qwen2-vl",
        {"dtype": "float16", "max_batch_size": 4, "max_sequence_length": 3072},
        1,
        {
            "--dtype": "float16",
            "--gemm_plugin": "float16",
            "--gpt_attention_plugin": "float16",
            "--max_batch_size": "4",
            "--max_input_len": "2048",
            "--max_seq_len": "3072",
            "--max_multimodal_len": "1296",
        },
    ),
    Documented(
        "InternVL2",
        'examples/models/core/multimodal/README.md, "InternVL2"',
        "internvl2-internlm2",
        {"dtype": "float16", "max_batch_size": 1, "max_sequence_length": 4608},
        1,
        {
            "--dtype": "float16",
            "--gemm_plugin": "auto",
            "--max_batch_size": "1",
            "--max_input_len": "4096",
            "--max_seq_len": "4608",
            "--max_multimodal_len": "3328",
        },
    ),
)
DEFAULT = "its default, written down"
REASONS = {
    "--dtype": "the checkpoint's own; `--dtype float16` asks for the page's",
    "--gemm_plugin": "`auto` is the dtype",
    "--gpt_attention_plugin": "`auto`, its default, is the dtype",
    "--max_batch_size": "2048 by default, which few GPUs hold the KV cache for",
    "--max_input_len": "1024 by default; prompts may be as long as the context here",
    "--max_num_tokens": DEFAULT,
    "--max_seq_len": "the model's by default: written down",
    "--max_beam_width": DEFAULT,
    "--kv_cache_type": DEFAULT,
    "--remove_input_padding": DEFAULT,
    "--use_paged_context_fmha": f"{DEFAULT}: reuse of prefixes and prefill in chunks need it",
    "--tp_size": DEFAULT,
    "--pp_size": DEFAULT,
    "--workers": DEFAULT,
}


def recipes_table() -> str:
    """The families that have a recipe."""
    rows = ["| recipe | architectures | script below `examples/` | quantisations | images |", "| --- " * 5 + "|"]
    return "\n".join((*rows, *map(_recipe_row, RECIPES))) + "\n"


def _recipe_row(recipe: Recipe) -> str:
    architectures = ", ".join(f"`{name}`" for name in recipe.architectures)
    quantisations = ", ".join(recipe.quantisations) or "–"  # noqa: RUF001 - a dash is meant
    images = f"{recipe.image_rows} rows each" if recipe.image_rows else ""
    folder = recipe.script.removesuffix("/convert_checkpoint.py")
    return f"| {recipe.family} | {architectures} | {folder} | {quantisations} | {images} |"


def flags_tables() -> str:
    """What the vendor's pages and this server give to the tools for the same engine."""
    return "\n".join(_flags_table(documented) for documented in VENDORS)


def _flags_table(documented: Documented) -> str:
    ours = _our_flags(documented)
    rows = [f"**{documented.title}** ({documented.page})\n", "| flag | there | here | why |", "| --- " * 4 + "|"]
    for flag in sorted({*ours, *documented.vendor}):
        there, here = documented.vendor.get(flag, ""), ours.get(flag, "")
        reason = "" if there == here else REASONS[flag]
        rows.append(f"| `{flag}` | {there} | {here} | {reason} |")
    return "\n".join(rows) + "\n"


def _our_flags(documented: Documented) -> dict[str, str]:
    folders = Folders(Path("/examples"), Path("/converted"), Path("/engine"))
    with tempfile.TemporaryDirectory() as scratch:
        model = write_weights(Path(scratch) / "model", FAMILIES[documented.family].config)
        plan = EnginePlan.make(model, EngineOptions(**documented.options))
        commands = plan.commands(folders, python="python3", build="trtllm-build", workers=documented.workers)
    return {flag: value for command in commands for flag, value in _pairs(command) if flag not in OF_FOLDERS}


def _pairs(command: Command) -> list[tuple[str, str]]:
    numbered, current = [], 0
    for argument in command.arguments:
        current += argument.startswith("--")
        numbered.append((current, argument))
    groups = [[argument for _, argument in group] for _, group in groupby(numbered, key=lambda pair: pair[0])]
    return [(flag, " ".join(values)) for flag, *values in groups if flag.startswith("--")]


def replaced(text: str, marks: tuple[str, str], table: str) -> str:
    """The page with a table between its marks."""
    before, _, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    return f"{before}{marks[0]}{table}{end}{after}"


def page() -> str:
    """The page as it ought to be."""
    text = PAGE.read_text(encoding="utf-8")
    return replaced(replaced(text, RECIPES_MARKS, recipes_table()), FLAGS_MARKS, flags_tables())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
