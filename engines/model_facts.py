"""What every builder knows of models, and the small files that every engine folder has."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from engines.folder import CHAT_TEMPLATE_FILE, GENERATION_CONFIG_FILE, TOKENIZER_FILE

# Control tokens that end a turn or a text in every family that has them; files often name only one of theirs.
END_TEXTS = frozenset({"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"})


def write_texts(
    target: Path, tokenizer: Tokenizer, chat_template: str | None, sampling_defaults: Mapping[str, float | int]
) -> None:
    """Write everything of an engine folder but the graph and the description."""
    (target / TOKENIZER_FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    if chat_template:
        (target / CHAT_TEMPLATE_FILE).write_text(chat_template, encoding="utf-8")
    (target / GENERATION_CONFIG_FILE).write_text(json.dumps(sampling_defaults, indent=2) + "\n", encoding="utf-8")
