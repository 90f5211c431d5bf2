"""GGUF file to OpenVINO IR, exactly: the weights are dequantised before the graph is made.

openvino-genai reads quantised GGUF files too, but into other weights (71 % top-1 agreement on a Q4_1 model), so it is
given an F16 file; what it still rounds is restored in the graph it saves. It runs in a child process: its memory comes
back, and a crash in it is one error here.
"""

import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from gguf import TokenType

from engines.building import BuildError, BuildRequest, refuse_full_disk
from engines.folder import ModelFacts
from engines.model_facts import END_TEXTS, write_texts
from engines.model_files import IR_FILE
from engines.openvino.conversion import EXACT_PRECISION, NO_TELEMETRY, run_child
from engines.openvino.exact_vectors import restore_vectors
from engines.openvino.gguf_f16 import write_f16
from engines.openvino.gguf_model import GgufError, GgufModel
from engines.openvino.gguf_tokenizer import build_tokenizer
from engines.progress import Phase, Progress

_PACKAGES = ("openvino", "openvino-genai", "gguf", "tokenizers")
_EXPORT = f"""{NO_TELEMETRY}
import openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""
# general.sampling.* of a GGUF -> our name of the sampling parameter
_SAMPLING_KEYS: Mapping[str, str] = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def import_gguf(request: BuildRequest, target: Path, progress: Progress) -> ModelFacts:
    """Write the IR, tokenizer, template and sampling defaults of a GGUF file into `target`.

    Raises GgufError for a file that cannot be converted exactly, BuildError if the conversion fails.
    """
    model = GgufModel.open(request.model.path)
    tokenizer = build_tokenizer(model)  # first: it is quick and refuses most of what is refused at all
    if tokenizer.get_vocab_size() > model.vocab_size:
        raise GgufError(f"{model.path} has more tokens than the {model.vocab_size} rows of its embedding")
    _write_ir(model, target, progress)
    write_texts(target, tokenizer, model.text("tokenizer.chat_template"), _sampling_defaults(model))
    return _facts(model, request.name)


def _write_ir(model: GgufModel, target: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=target) as scratch:
        refuse_full_disk(target, 2 * model.f16_bytes())  # two copies of the weights lie side by side at any time
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


def _export(exact: Path) -> None:
    """Let openvino-genai write the IR beside the F16 GGUF file."""
    failure = run_child(["-c", _EXPORT, str(exact)])
    if failure is None and not exact.with_name(IR_FILE).is_file():
        failure = "it wrote no graph"
    if failure:
        raise BuildError(f"openvino-genai could not convert the model: {failure}")


def _facts(model: GgufModel, name: str) -> ModelFacts:
    tokens = model.tokens()
    end_token_ids = _end_token_ids(model, tokens)
    bos_token_id = model.token_id("bos")
    return ModelFacts(
        model_name=model.text("general.name") or name,
        architecture=model.architecture,
        precision=EXACT_PRECISION,
        vocab_size=model.vocab_size,
        max_sequence_length=model.parameter("context_length"),
        end_token_ids=end_token_ids,
        eos_text=tokens[end_token_ids[0]],
        bos_token_id=bos_token_id,
        bos_text=None if bos_token_id is None else tokens[bos_token_id],
        prompt_starts_with_bos=_starts_with_bos(model),
        model_config={"model_type": model.architecture, "_name_or_path": name},
        versions={package: version(package) for package in _PACKAGES},
    )


def _end_token_ids(model: GgufModel, tokens: list[str]) -> tuple[int, ...]:
    """List the model's end token, then every other token that ends a turn or a text."""
    named = [model.token_id(role) for role in ("eos", "eot", "eom")]
    if named[0] is None:
        raise GgufError(f"{model.path} names no end token")
    types = model.per_token("token_type")
    known = [i for i, text in enumerate(tokens) if text in END_TEXTS and types[i] == TokenType.CONTROL]
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
