"""The story of one chat request: messages, prompt, token ids, sequences, text, deltas, answer."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from engines.contract import GenerationRequest, Guide, TokenOutput
from engines.errors import ContextLengthError, EngineError, InvalidRequestError
from llm_server.errors import InvalidBodyError, UnsupportedParameterError
from llm_server.protocol.chat import ChatCompletionRequest
from llm_server.registry import ModelRegistry, ServedModel
from llm_server.services.answer import ChoiceReader, ChoiceUpdate
from llm_server.services.prompt import encode_prompt, encode_words
from llm_server.services.streams import Outputs, interleave
from llm_server.services.usage import Usage
from llm_server.stop_strings import StopStrings
from llm_server.tokenizer import Detokenizer, TooManyTokensError
from stylers.chat import Chat
from stylers.prompt import Prompt


class ChatService:
    """Opens answers. One object serves all requests; what belongs to a request lives in its ChatAnswer."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def open(self, body: ChatCompletionRequest, answer_id: str) -> "ChatAnswer":
        """Queue a chat and wait for its first output, so that whatever is refused is refused before any byte goes out.

        Raises RequestError, StylerError or EngineError. Close the answer, read or not.
        """
        model = self._registry.get(body.model)
        chat = Chat.from_openai(body.chat())
        _refuse_unsupported(body, chat, model)
        guide = body.guide()
        prompt = model.styler.build_prompt(chat)
        prompt_token_ids = await _encode(prompt, body, model)
        request = _generation_request(body, model, prompt, prompt_token_ids, guide, answer_id)
        if guide is not None:
            await _compile(guide, body, model)
        answer = ChatAnswer(model, _readers(body, model, chat, prompt, fan_out(request, body.n or 1)))
        try:
            await answer.start()
        except BaseException:
            answer.close()
            raise
        return answer


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


def fan_out(request: GenerationRequest, num_choices: int) -> list[GenerationRequest]:
    """Return one request per choice: each has an id and a seed of its own, and nothing else differs."""
    sampling, answer_id = request.sampling, request.seq_id
    return [
        replace(
            request,
            seq_id=f"{answer_id}-{index}",
            sampling=sampling if sampling.seed is None else replace(sampling, seed=(sampling.seed + index) % 2**64),
        )
        for index in range(num_choices)
    ]


async def _encode(prompt: Prompt, body: ChatCompletionRequest, model: ServedModel) -> list[int]:
    try:
        return await encode_prompt(prompt, model.tokenizer, model.context_length)
    except TooManyTokensError as exc:
        raise _too_long(body, model, exc.at_least, "at least ") from exc


async def _compile(guide: Guide, body: ChatCompletionRequest, model: ServedModel) -> None:
    try:
        await model.executor.compile(guide)
    except InvalidRequestError as exc:  # the engine does not know which field the guide came from
        raise InvalidBodyError(exc.message, body.guide_param, code=exc.code) from exc


def _refuse_unsupported(body: ChatCompletionRequest, chat: Chat, model: ServedModel) -> None:
    """Name what the model's family cannot do, instead of answering as if it had not been asked for."""
    if not chat.tools:
        return
    if model.styler.supports.tools != "native":
        raise UnsupportedParameterError(f"the model {model.name} is served without tools", "tools")
    if chat.tool_choice.mode != "auto":
        raise UnsupportedParameterError("tool_choice can only be 'auto' or 'none'", "tool_choice")
    if body.parallel_tool_calls is False:
        raise UnsupportedParameterError("parallel_tool_calls cannot be switched off", "parallel_tool_calls")


def _generation_request(
    body: ChatCompletionRequest,
    model: ServedModel,
    prompt: Prompt,
    prompt_token_ids: Sequence[int],
    guide: Guide | None,
    answer_id: str,
) -> GenerationRequest:
    sampling = body.sampling_params(
        model.defaults,
        logprobs=body.num_alternatives,
        bad_token_sequences=encode_words(body.bad_words or (), model.tokenizer),
    )
    return GenerationRequest(
        seq_id=answer_id,
        prompt_token_ids=tuple(prompt_token_ids),
        sampling=sampling,
        max_tokens=_max_tokens(body, model, len(prompt_token_ids)),
        stop_token_ids=_stop_token_ids(body, model, prompt),
        guide=guide,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
    )


def _stop_token_ids(body: ChatCompletionRequest, model: ServedModel, prompt: Prompt) -> frozenset[int]:
    """End tokens, unless they are ignored, and the request's own; a stop string that is one token stops as that."""
    ends = frozenset() if body.ignore_eos else model.end_token_ids
    marks = [*(body.stop or ()), *(() if body.ignore_eos else prompt.stop)]
    marked = (token_id for mark in marks if (token_id := model.tokenizer.token_id(mark)) is not None)
    return ends.union(body.stop_token_ids or (), marked)


def _stop_strings(body: ChatCompletionRequest, model: ServedModel, prompt: Prompt) -> list[str]:
    """The request's own, and those of the family's that are no token of this vocabulary."""
    spelled = () if body.ignore_eos else prompt.stop
    return [*(body.stop or ()), *(stop for stop in spelled if model.tokenizer.token_id(stop) is None)]


def _readers(
    body: ChatCompletionRequest,
    model: ServedModel,
    chat: Chat,
    prompt: Prompt,
    requests: Sequence[GenerationRequest],
) -> list[ChoiceReader]:
    """One reader per choice, each with a state of its own."""
    stops = _stop_strings(body, model, prompt)
    hidden = frozenset[int]() if body.skip_special_tokens is False else model.hidden_token_ids
    return [
        ChoiceReader(
            index,
            request,
            Detokenizer(model.tokenizer, hidden=hidden),
            StopStrings(stops, include=bool(body.include_stop_str_in_output)),
            model.styler.new_parser(tools=chat.tools, prefilled_think=prompt.prefilled_think),
        )
        for index, request in enumerate(requests)
    ]


def _max_tokens(body: ChatCompletionRequest, model: ServedModel, num_prompt_tokens: int) -> int:
    """The bound of the answer: the request's own, else the rest of the context."""
    limit = model.context_length
    wanted = body.answer_limit
    if num_prompt_tokens + (wanted or 1) <= limit:
        return wanted or limit - num_prompt_tokens
    raise _too_long(body, model, num_prompt_tokens)


def _too_long(
    body: ChatCompletionRequest, model: ServedModel, num_prompt_tokens: int, at_least: str = ""
) -> ContextLengthError:
    """The refusal in OpenAI's words, which clients look for."""
    limit, wanted = model.context_length, body.answer_limit or 1
    return ContextLengthError(
        f"This model's maximum context length is {limit} tokens. However, you requested {at_least}"
        f"{num_prompt_tokens + wanted} tokens ({at_least}{num_prompt_tokens} in the messages, {wanted} in the "
        "completion). Please reduce the length of the messages or completion.",
        "messages" if num_prompt_tokens >= limit else "max_tokens",
    )
