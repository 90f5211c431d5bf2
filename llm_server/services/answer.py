"""An answer while it is generated."""

import time
from collections.abc import Sequence
from typing import Self

from engines.contract import TokenOutput
from engines.errors import EngineError
from llm_server.registry import ServedModel
from llm_server.services.choice import ChoiceReader, ChoiceUpdate
from llm_server.services.streams import Outputs, interleave
from llm_server.services.usage import Usage


class ChatAnswer:
    """A chat's answer while it is generated: an iterator over what is new of its choices, until all have finished."""

    def __init__(self, model: ServedModel, choices: Sequence[ChoiceReader]) -> None:
        self.model = model
        self.choices = choices
        self.created = int(time.time())
        self._num_open = len(choices)
        self._outputs: Outputs | None = None
        self._first: ChoiceUpdate | None = None

    async def start(self) -> None:
        """Submit the sequences and wait for the first output of any."""
        self._outputs = interleave([self.model.executor.submit(choice.request) for choice in self.choices])
        self._first = await self._next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChoiceUpdate:
        update, self._first = self._first, None
        if update is not None:
            return update
        if not self._num_open:
            raise StopAsyncIteration
        return await self._next()

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return Usage(
            prompt_tokens=len(self.choices[0].request.prompt_token_ids),
            completion_tokens=sum(choice.num_tokens for choice in self.choices),
            cached_tokens=self.choices[0].num_cached_tokens,
        )

    def close(self) -> None:
        """Free what the sequences hold in the engine. Idempotent; right after the end as well as in the middle."""
        for choice in self.choices:
            self.model.executor.cancel(choice.request.seq_id)
        if self._outputs is not None:
            self._outputs.close()

    async def _next(self) -> ChoiceUpdate:
        assert self._outputs is not None, "start() comes first"
        while True:
            try:
                index, output = await self._outputs.__anext__()
            except StopAsyncIteration as exc:
                raise EngineError("the engine ended a sequence without a finish reason") from exc
            choice = self.choices[index]
            if choice.finish_reason is None:  # else a step that ran before the cancel took effect
                return self._read(choice, output)

    def _read(self, choice: ChoiceReader, output: TokenOutput) -> ChoiceUpdate:
        update = choice.read(output)
        if update.finish_reason is not None:
            self._num_open -= 1
            if output.finish_reason is None:  # a stop string was hit
                self.model.executor.cancel(choice.request.seq_id)
        return update
