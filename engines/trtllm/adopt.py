"""A Hugging Face checkpoint to an engine folder: TensorRT-LLM reads the checkpoint where it lies, nothing is copied.

The folder holds what this server reads itself, tokenizer, chat template and sampling defaults, and says where the
model is.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engines.folder import (
    CHAT_TEMPLATE_FILE,
    GENERATION_CONFIG_FILE,
    TOKENIZER_FILE,
    EngineDescription,
    EngineFolder,
    describe_folder,
)
from engines.trtllm.checkpoint import Checkpoint, read_json
from engines.trtllm.errors import TensorRTLLMError
from engines.trtllm.location import ModelKind, ModelLocation

BUILDER = "trtllm-checkpoint-2"
_SAMPLING_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def adopt_checkpoint(path: Path, target: Path, versions: Mapping[str, str] | None = None) -> EngineFolder:
    """Describe a checkpoint in the empty folder `target`. Raises TensorRTLLMError for one that cannot be served."""
    checkpoint = Checkpoint(path.resolve())
    source = checkpoint.path / TOKENIZER_FILE
    if not source.is_file():
        raise TensorRTLLMError(
            f"{path} has no {TOKENIZER_FILE}; write one with transformers: AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...)"
        )
    shutil.copyfile(source, target / TOKENIZER_FILE)
    texts = _optional(checkpoint.path / "tokenizer_config.json")
    if template := _chat_template(checkpoint.path, texts):
        (target / CHAT_TEMPLATE_FILE).write_text(template, encoding="utf-8")
    generation = _optional(checkpoint.path / "generation_config.json")
    _write_json(target / GENERATION_CONFIG_FILE, _sampling_defaults(generation))
    ModelLocation(ModelKind.CHECKPOINT, checkpoint.path).write(target)
    return describe_folder(target, _describe(checkpoint, generation, texts, versions or {}))


def fingerprint(path: Path) -> str:
    """Hash what a checkpoint's configuration says, and the names and sizes of its weights."""
    digest = hashlib.sha256((path / "config.json").read_bytes())
    for file in sorted(path.glob("*.safetensors")):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return digest.hexdigest()


def _describe(
    checkpoint: Checkpoint, generation: Mapping[str, Any], texts: Mapping[str, Any], versions: Mapping[str, str]
) -> EngineDescription:
    tokenizer = Tokenizer.from_file(str(checkpoint.path / TOKENIZER_FILE))
    end_token_ids = _end_token_ids(checkpoint, generation)
    bos_token_id = checkpoint.text_config.get("bos_token_id")
    bos_text = _token_text(texts.get("bos_token"))
    return EngineDescription(
        engine="trtllm",
        model_name=checkpoint.path.name,
        architecture=checkpoint.architecture,
        precision=checkpoint.quantisation or checkpoint.dtype,
        vocab_size=checkpoint.vocab_size,
        max_sequence_length=checkpoint.max_sequence_length,
        end_token_ids=end_token_ids,
        eos_text=tokenizer.id_to_token(end_token_ids[0]) or "",
        bos_token_id=bos_token_id,
        bos_text=bos_text,
        prompt_starts_with_bos=bos_token_id is not None and tokenizer.encode("a").ids[:1] == [bos_token_id],
        source=f"hf:{checkpoint.path}",
        source_sha256=fingerprint(checkpoint.path),
        builder=BUILDER,
        versions=versions,
    )


def _end_token_ids(checkpoint: Checkpoint, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The model's own end token first, then those that its generation_config adds."""
    found: list[int] = []
    for value in (checkpoint.text_config.get("eos_token_id"), generation.get("eos_token_id")):
        found += value if isinstance(value, list) else [] if value is None else [value]
    if not found:
        raise TensorRTLLMError(f"{checkpoint.path} names no eos_token_id in config.json or generation_config.json")
    return tuple(dict.fromkeys(found))


def _chat_template(path: Path, texts: Mapping[str, Any]) -> str | None:
    file = path / CHAT_TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = texts.get("chat_template")
    if isinstance(template, list):  # several by name; the one for chats is called "default"
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _sampling_defaults(generation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: generation[name] for name in _SAMPLING_NAMES if generation.get(name) is not None}


def _token_text(token: Any) -> str | None:
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _write_json(file: Path, document: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
