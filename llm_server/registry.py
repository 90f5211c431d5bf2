"""The models one server serves, by name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from engines.contract import Executor
from llm_server.errors import ModelNotFoundError
from llm_server.tokenizer import Tokenizer
from stylers.base import Styler
from stylers.literal_search import any_of


class HiddenTokens:
    """Special tokens to be dropped from answers.

    Parsers see them, for most families' marks are special tokens; what a parser leaves in the text is dropped behind
    it, by `removed_from`.
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.ids = frozenset(tokens.values())
        self._pattern = re.compile(any_of(tokens))

    def removed_from(self, text: str) -> str:
        """Return a text without the tokens."""
        return self._pattern.sub("", text)


NOTHING_HIDDEN = HiddenTokens({})


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything a request needs of one model; fixed once the server runs."""

    name: str
    styler: Styler
    tokenizer: Tokenizer
    executor: Executor
    end_token_ids: frozenset[int]
    """End tokens of the model and of its styler's turns: they stop an answer unless end tokens are ignored."""
    hidden_tokens: HiddenTokens = NOTHING_HIDDEN
    """Special tokens that no client sees."""
    reasoning_field: str = "reasoning_content"
    """The name of the field that reasoning goes out in."""
    defaults: Mapping[str, float | int] = field(default_factory=dict)
    """The model's own sampling defaults, by the names of SamplingParams."""
    created: int = 0
    """Unix time at which the model was loaded."""
    base: str | None = None
    """Name of the model that this is a LoRA adapter of, with its executor; None for a model itself."""

    @property
    def adapter(self) -> str | None:
        """The adapter that requests for this model ask the executor for."""
        return None if self.base is None else self.name

    def with_adapters(self) -> "list[ServedModel]":
        """Return the model, and each adapter of its executor as a model of its own name."""
        return [self, *(replace(self, name=name, base=self.name) for name in self.executor.info.adapters)]

    @property
    def context_length(self) -> int:
        """Prompt and answer of one sequence together, in tokens: what both the model and the KV cache can hold."""
        info = self.executor.info
        return min(info.max_sequence_length, info.num_blocks * info.block_size)


class ModelRegistry:
    """Served models by name, in the order they were configured."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def executors(self) -> Iterator[Executor]:
        """Return each executor once, though it may serve several models."""
        return (model.executor for model in self if model.base is None)

    def get(self, name: str) -> ServedModel:
        """Return a model. Raises ModelNotFoundError, which names those there are."""
        model = self._models.get(name)
        if model is None:
            served = ", ".join(self._models)
            raise ModelNotFoundError(f"there is no model {name!r}; this server has {served}", "model")
        return model
