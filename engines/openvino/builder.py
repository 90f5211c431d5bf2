"""GGUF file to OpenVINO engine folder, exactly: the weights are dequantised before the graph is made.

openvino-genai reads quantised GGUF files too, but into other weights (71 % top-1 agreement on a Q4_1 model), so it is
given an F16 file; what it still rounds is restored in the graph it saves. It runs in a child process: its memory comes
back, and a crash in it is one error here.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gguf import TokenType

from engines.folder import (
    CHAT_TEMPLATE_FILE,
    GENERATION_CONFIG_FILE,
    TOKENIZER_FILE,
    EngineDescription,
    EngineFolder,
    describe_folder,
)
from engines.openvino.exact_vectors import restore_vectors
from engines.openvino.gguf_f16 import write_f16
from engines.openvino.gguf_model import GgufError, GgufModel
from engines.openvino.gguf_tokenizer import build_tokenizer
from engines.progress import Phase, Progress, silent

PRECISION: Final = "f16"
_PACKAGES = ("openvino", "openvino-genai", "gguf", "tokenizers")
IR_FILE = "openvino_model.xml"  # its weights go to openvino_model.bin beside it
_EXPORT = "import sys, openvino_genai; openvino_genai.LLMPipeline(sys.argv[1], 'CPU', enable_save_ov_model=True)"
# general.sampling.* of a GGUF -> our name of the sampling parameter
_SAMPLING_KEYS: Mapping[str, str] = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
# Control tokens that end a turn or a text in every family that has them; GGUF files often name only one of theirs.
_END_TEXTS = frozenset({"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"})


class BuildError(Exception):
    """The graph of a model could not be made."""

    code = "engine_build_failed"


def build_engine(
    gguf_path: Path,
    target: Path,
    *,
    source: str,
    source_sha256: str,
    builder: str,
    versions: Mapping[str, str],
    progress: Progress = silent,
) -> EngineFolder:
    """Build the engine folder of a GGUF file inside the empty folder `target`.

    `source`, `source_sha256`, `builder` and `versions` are recorded in engine.json, with the versions of the packages
    used here. Raises GgufError for a file that cannot be converted exactly, BuildError if the conversion fails.
    """
    model = GgufModel.open(gguf_path)
    tokenizer = build_tokenizer(model)  # first: it is quick and refuses most of what is refused at all
    if tokenizer.get_vocab_size() > model.vocab_size:
        raise GgufError(f"{gguf_path} has more tokens than the {model.vocab_size} rows of its embedding")
    _write_ir(model, target, progress)
    progress(Phase.WRITE, 0, 1)
    tokenizer.save(str(target / TOKENIZER_FILE), pretty=False)
    if template := model.text("tokenizer.chat_template"):
        (target / CHAT_TEMPLATE_FILE).write_text(template, encoding="utf-8")
    (target / GENERATION_CONFIG_FILE).write_text(json.dumps(_sampling_defaults(model), indent=2) + "\n")
    description = _describe(model, source, source_sha256, builder, {**_package_versions(), **versions})
    folder = describe_folder(target, description)
    progress(Phase.WRITE, 1, 1)
    return folder


def _write_ir(model: GgufModel, target: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=target) as scratch:
        _refuse_full_disk(model, Path(scratch))
        exact = Path(scratch) / "model.gguf"
        write_f16(model, exact, progress)
        progress(Phase.CONVERT, 0, 2)
        _export(exact)
        exact.unlink()  # makes room for the graph
        progress(Phase.CONVERT, 1, 2)
        try:
            restore_vectors(exact.with_name(IR_FILE), target / IR_FILE, model)
        except RuntimeError as exc:  # whatever openvino meets while it reads and writes
            raise BuildError(f"openvino could not copy the graph: {exc}") from exc
        progress(Phase.CONVERT, 2, 2)


def _refuse_full_disk(model: GgufModel, scratch: Path) -> None:
    needed_bytes = 2 * model.f16_bytes()  # two copies of the weights lie side by side at any time
    free_bytes = shutil.disk_usage(scratch).free
    if free_bytes < needed_bytes:
        needed, free = (f"{count / 2**20:.0f} MiB" for count in (needed_bytes, free_bytes))
        raise BuildError(f"the conversion needs {needed} of free disk space and finds {free}")


def _export(exact: Path) -> None:
    """Let openvino-genai write the IR beside the F16 GGUF file."""
    child = subprocess.run([sys.executable, "-c", _EXPORT, str(exact)], capture_output=True, text=True, check=False)
    if child.returncode or not exact.with_name(IR_FILE).is_file():
        reason = child.stderr.strip().splitlines() or ["no message"]
        raise BuildError(f"openvino-genai could not convert the model (exit status {child.returncode}): {reason[-1]}")


def _describe(
    model: GgufModel, source: str, source_sha256: str, builder: str, versions: Mapping[str, str]
) -> EngineDescription:
    tokens = model.tokens()
    end_token_ids = _end_token_ids(model, tokens)
    bos_token_id = model.token_id("bos")
    return EngineDescription(
        engine="openvino",
        model_name=model.text("general.name") or model.path.stem,
        architecture=model.architecture,
        precision=PRECISION,
        vocab_size=model.vocab_size,
        max_sequence_length=model.parameter("context_length"),
        end_token_ids=end_token_ids,
        eos_text=tokens[end_token_ids[0]],
        bos_token_id=bos_token_id,
        bos_text=None if bos_token_id is None else tokens[bos_token_id],
        prompt_starts_with_bos=_starts_with_bos(model),
        source=source,
        source_sha256=source_sha256,
        builder=builder,
        versions=versions,
    )


def _end_token_ids(model: GgufModel, tokens: list[str]) -> tuple[int, ...]:
    """List the model's end token, then every other token that ends a turn or a text."""
    named = [model.token_id(role) for role in ("eos", "eot", "eom")]
    if named[0] is None:
        raise GgufError(f"{model.path} names no end token")
    types = model.per_token("token_type")
    known = [i for i, text in enumerate(tokens) if text in _END_TEXTS and types[i] == TokenType.CONTROL]
    return tuple(dict.fromkeys(token_id for token_id in (*named, *known) if token_id is not None))


def _starts_with_bos(model: GgufModel) -> bool:
    """Read whether the model was trained on texts that start with BOS; files leave it out where it is usual."""
    usual = model.text("tokenizer.ggml.model") == "llama" or model.text("tokenizer.ggml.pre") == "llama-bpe"
    return model.flag("tokenizer.ggml.add_bos_token", default=usual)


def _sampling_defaults(model: GgufModel) -> dict[str, float | int]:
    values = {name: model.number(f"general.sampling.{key}") for key, name in _SAMPLING_KEYS.items()}
    # the file has them in float32: 0.9 would otherwise come out as 0.8999999761581421
    defaults: dict[str, float | int] = {name: round(value, 6) for name, value in values.items() if value is not None}
    if "top_k" in defaults:
        defaults["top_k"] = int(defaults["top_k"])
    return defaults


def _package_versions() -> dict[str, str]:
    return {package: version(package) for package in _PACKAGES}
