"""The files beside the weights of a Hugging Face model: configuration, tokenizer, template, sampling defaults.

Source: the files that `save_pretrained` of transformers 4.57 and 5 writes. Nothing here runs code of the model.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokenizers import Tokenizer

from engines.building import BuildError
from engines.folder import CHAT_TEMPLATE_FILE, GENERATION_CONFIG_FILE, ModelFacts
from engines.model_facts import END_TEXTS
from engines.model_files import CONFIG_FILE

JsonObject: TypeAlias = Mapping[str, object]

_TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_TEMPLATE_JSON_FILE = "chat_template.json"  # as processors wrote it before chat_template.jinja
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
_NESTED_KEYS = ("text_config", "llm_config")
_FAMILY_KEYS = ("model_type", "architectures", "_name_or_path")


@dataclass(frozen=True, slots=True)
class HuggingFaceMetadata:
    """What the small files of one folder say."""

    folder: Path
    config: JsonObject
    generation: JsonObject
    tokenizer_config: JsonObject

    @classmethod
    def read(cls, folder: Path) -> "HuggingFaceMetadata":
        """Read the files. Raises BuildError naming the one that is missing or damaged."""
        config, generation, tokenizer_config = (
            _read_json(folder / name) for name in (CONFIG_FILE, GENERATION_CONFIG_FILE, _TOKENIZER_CONFIG_FILE)
        )
        if not config:
            raise BuildError(f"{folder / CONFIG_FILE} is missing or empty")
        return cls(folder, config, generation, tokenizer_config)

    @property
    def text_config(self) -> JsonObject:
        """The language model's part of config.json, which models with images keep apart."""
        nested = (self.config.get(name) for name in _NESTED_KEYS)
        return next((part for part in nested if isinstance(part, dict)), self.config)

    def facts(
        self,
        tokenizer: Tokenizer,
        *,
        name: str,
        precision: str,
        vocab_size: int,
        max_sequence_length: int,
        versions: Mapping[str, str],
    ) -> ModelFacts:
        """Collect the facts of a model whose logits have `vocab_size` columns. Raises BuildError on a missing one."""
        end_token_ids = self._end_token_ids(tokenizer, vocab_size)
        bos_token_id = self._bos_token_id(tokenizer)
        return ModelFacts(
            model_name=name,
            architecture=str(self.config.get("model_type") or "(none)"),
            precision=precision,
            vocab_size=vocab_size,
            max_sequence_length=max_sequence_length,
            end_token_ids=end_token_ids,
            eos_text=tokenizer.id_to_token(end_token_ids[0]) or "",
            bos_token_id=bos_token_id,
            bos_text=None if bos_token_id is None else tokenizer.id_to_token(bos_token_id),
            prompt_starts_with_bos=bos_token_id is not None and tokenizer.encode("a").ids[:1] == [bos_token_id],
            model_config={"_name_or_path": name}
            | {key: self.config[key] for key in _FAMILY_KEYS if key in self.config},
            versions=versions,
        )

    def chat_template(self) -> str | None:
        """Return the template for chats; models with several call it `default`."""
        file = self.folder / CHAT_TEMPLATE_FILE
        if file.is_file():
            return _read_text(file)
        stored = self.tokenizer_config.get("chat_template")
        stored = stored or _read_json(self.folder / _TEMPLATE_JSON_FILE).get("chat_template")
        if isinstance(stored, list):
            named = {entry["name"]: entry["template"] for entry in stored if isinstance(entry, dict)}
            stored = named.get("default")
        return stored if isinstance(stored, str) else None

    def sampling_defaults(self) -> dict[str, float | int]:
        """Return the sampling parameters that generation_config.json sets, by the names of SamplingParams."""
        values = ((key, self.generation.get(key)) for key in _SAMPLING_KEYS)
        return {key: value for key, value in values if isinstance(value, int | float) and not isinstance(value, bool)}

    def refuse_more_tokens_than(self, vocab_size: int, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer with tokens that the logits have no column for. Raises BuildError."""
        if tokenizer.get_vocab_size() > vocab_size:
            raise BuildError(f"{self.folder} has more tokens than the {vocab_size} columns of its logits")

    def refuse_unfollowed(self) -> None:
        """Refuse what the executor does not follow. Raises BuildError."""
        if "audio_config" in self.config:
            raise BuildError(f"{self.folder} listens: its {CONFIG_FILE} has an audio_config, which is not converted")
        window = self.text_config.get("sliding_window")
        slides = self.text_config.get("use_sliding_window", True) and self._has_sliding_layers()
        if isinstance(window, int) and slides and window < self.context_length():
            raise BuildError(
                f"{self.folder} attends to {window} of {self.context_length()} tokens; windows are not converted"
            )

    def _has_sliding_layers(self) -> bool:
        layers = self.text_config.get("layer_types")
        return not isinstance(layers, list) or any(layer != "full_attention" for layer in layers)

    def context_length(self) -> int:
        """Return how many tokens the model was made for."""
        found = (self.text_config.get(key) for key in _CONTEXT_KEYS)
        length = next((value for value in found if isinstance(value, int) and value > 0), None)
        if length is None:
            raise BuildError(f"{self.folder / CONFIG_FILE} lacks a positive {_CONTEXT_KEYS[0]}")
        return length

    def _end_token_ids(self, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
        """List the model's end token, then every other token that ends a turn or a text."""
        named = [*_ids(self.generation.get("eos_token_id")), *_ids(self.text_config.get("eos_token_id"))]
        own = _token_id(tokenizer, self.tokenizer_config.get("eos_token"))
        known = (_token_id(tokenizer, text) for text in sorted(END_TEXTS))
        found = (token_id for token_id in (*named, own, *known) if token_id is not None)
        end_token_ids = tuple(dict.fromkeys(token_id for token_id in found if 0 <= token_id < vocab_size))
        if not end_token_ids:
            raise BuildError(f"{self.folder} names no end token")
        return end_token_ids

    def _bos_token_id(self, tokenizer: Tokenizer) -> int | None:
        named = _token_id(tokenizer, self.tokenizer_config.get("bos_token"))
        return named if named is not None else next(_ids(self.text_config.get("bos_token_id")), None)


def _ids(value: object) -> Iterator[int]:
    yield from (entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, int))


def _token_id(tokenizer: Tokenizer, spelling: object) -> int | None:
    """Find a token by its text; older files wrap the text in an object."""
    text = spelling.get("content") if isinstance(spelling, dict) else spelling
    return tokenizer.token_to_id(text) if isinstance(text, str) else None


def _read_json(file: Path) -> JsonObject:
    """Return the object of a JSON file, an empty one where the file is not there."""
    if not file.is_file():
        return {}
    try:
        document = json.loads(_read_text(file))
    except (ValueError, RecursionError) as exc:
        raise BuildError(f"{file} is not valid JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise BuildError(f"{file} does not hold a JSON object")
    return document


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise BuildError(f"{file} cannot be read: {exc}") from exc


def read_tokenizer(file: Path) -> Tokenizer:
    """Read a tokenizer.json. Raises BuildError."""
    if not file.is_file():
        raise BuildError(f"{file} is missing")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as exc:  # tokenizers raises nothing narrower
        raise BuildError(f"{file} cannot be read as a tokenizer: {exc}") from exc
