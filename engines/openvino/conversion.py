"""What all importers share: the facts they find out, the small files they write, and how they run what may crash."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from engines.building import BuildError
from engines.folder import CHAT_TEMPLATE_FILE, GENERATION_CONFIG_FILE, TOKENIZER_FILE

EXACT_PRECISION: Final = "f16"
# Control tokens that end a turn or a text in every family that has them; files often name only one of theirs.
END_TEXTS = frozenset({"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"})


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model says about itself; the fields are those of EngineDescription."""

    model_name: str
    architecture: str
    precision: str
    vocab_size: int
    max_sequence_length: int
    end_token_ids: tuple[int, ...]
    eos_text: str
    bos_token_id: int | None
    bos_text: str | None
    prompt_starts_with_bos: bool
    model_config: Mapping[str, object]
    versions: Mapping[str, str]


def write_texts(
    target: Path, tokenizer: Tokenizer, chat_template: str | None, sampling_defaults: Mapping[str, float | int]
) -> None:
    """Write everything of an engine folder but the graph and the description."""
    (target / TOKENIZER_FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    if chat_template:
        (target / CHAT_TEMPLATE_FILE).write_text(chat_template, encoding="utf-8")
    (target / GENERATION_CONFIG_FILE).write_text(json.dumps(sampling_defaults, indent=2) + "\n", encoding="utf-8")


def refuse_full_disk(folder: Path, needed_bytes: int) -> None:
    """Raise BuildError unless the disk of `folder` has so much room."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        needed, free = (f"{count / 2**20:.0f} MiB" for count in (needed_bytes, free_bytes))
        raise BuildError(f"the conversion needs {needed} of free disk space and finds {free}")


NO_TELEMETRY = "import sys; sys.modules['openvino_telemetry'] = None"
"""First line of a child's script: openvino and nncf tell an analytics service of their use unless this is missing."""


def run_child(
    arguments: Sequence[str], *, python: Path = Path(sys.executable), environment: Mapping[str, str] | None = None
) -> str | None:
    """Run Python in a process of its own and return None, or in one line why it failed.

    `-P`: no module is imported from the current folder, which may be that of the model.
    """
    command = [str(python), "-P", *arguments]
    child = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if child.returncode < 0:
        return f"it was ended by {signal.Signals(-child.returncode).name}"
    if child.returncode:
        return (child.stderr.strip().splitlines() or ["no message"])[-1]
    return None
