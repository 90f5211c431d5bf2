"""The story of one chat request: messages, prompt, token ids, sequences, text, deltas, answer."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engines.contract import GenerationRequest, Guide, GuideKind
from engines.errors import InvalidRequestError
from llm_server.errors import InvalidBodyError
from llm_server.protocol.chat import ChatCompletionRequest
from llm_server.registry import NOTHING_HIDDEN, ModelRegistry, ServedModel
from llm_server.services.answer import ChatAnswer
from llm_server.services.choice import ChoiceReader
from llm_server.services.prompt import encode_prompt
from llm_server.services.requests import check_num_choices, fan_out, generation_request, stop_strings, too_long
from llm_server.services.tools import call_guide, max_calls, refuse_unsupported_tools
from llm_server.stop_strings import StopStrings
from llm_server.tokenizer import Detokenizer, TooManyTokensError
from stylers.chat import Chat
from stylers.prompt import Prompt

INLINE_BYTES = 64 * 1024
"""Rendering a body of this size takes a few milliseconds at most."""


class ChatService:
    """Opens answers. One object serves all requests; what belongs to a request lives in its ChatAnswer."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def open(self, body: ChatCompletionRequest, answer_id: str, num_bytes: int) -> ChatAnswer:
        """Queue a chat and wait for its first output, so that whatever is refused is refused before any byte goes out.

        `num_bytes`: how large the body was; a large one is rendered off the loop. Raises RequestError, StylerError or
        EngineError. Close the answer, read or not.
        """
        model = self._registry.get(body.model)
        check_num_choices(body, model)
        if len(body.messages) > model.context_length:  # each is a token at least
            raise too_long(body, model, len(body.messages), "at least ")
        if num_bytes <= INLINE_BYTES:
            chat, prompt, guide = _render(body, model)
        else:
            chat, prompt, guide = await asyncio.to_thread(_render, body, model)
        prompt_token_ids = await _encode(prompt, body, model)
        request = generation_request(body, model, prompt, prompt_token_ids, guide, answer_id)
        if guide is not None:
            with _naming_guide(guide, body):
                await model.executor.compile(guide)
        answer = ChatAnswer(model, _readers(body, model, chat, prompt, fan_out(request, body.n or 1)))
        try:
            with _naming_guide(guide, body):
                await answer.start()
        except BaseException:
            answer.close()
            raise
        return answer


def _render(body: ChatCompletionRequest, model: ServedModel) -> tuple[Chat, Prompt, Guide | None]:
    chat = Chat.from_openai(body.chat())
    refuse_unsupported_tools(body, chat, model)
    prompt = model.styler.build_prompt(chat)
    return chat, prompt, call_guide(body, chat, prompt, model) or body.guide()


async def _encode(prompt: Prompt, body: ChatCompletionRequest, model: ServedModel) -> list[int]:
    try:
        return await encode_prompt(prompt, model.tokenizer, model.context_length)
    except TooManyTokensError as exc:
        raise too_long(body, model, exc.at_least, "at least ") from exc


@contextmanager
def _naming_guide(guide: Guide | None, body: ChatCompletionRequest) -> Iterator[None]:
    """Name the field that the guide came from, which the engine does not know."""
    try:
        yield
    except InvalidRequestError as exc:
        if guide is None or exc.param != "guide":
            raise
        param = "tool_choice" if guide.kind is GuideKind.CALL_FORMAT else body.guide_param
        raise InvalidBodyError(exc.message, param, code=exc.code) from exc


def _readers(
    body: ChatCompletionRequest,
    model: ServedModel,
    chat: Chat,
    prompt: Prompt,
    requests: Sequence[GenerationRequest],
) -> list[ChoiceReader]:
    """One reader per choice, each with a state of its own."""
    stops = stop_strings(body, model, prompt)
    hidden = NOTHING_HIDDEN if body.skip_special_tokens is False else model.hidden_tokens
    return [
        ChoiceReader(
            index,
            request,
            Detokenizer(model.tokenizer, continues_text=chat.continue_final_message),
            StopStrings(stops, include=bool(body.include_stop_str_in_output)),
            model.styler.new_parser(tools=chat.tools, prefilled_think=prompt.prefilled_think),
            hidden,
            max_calls=max_calls(body),
        )
        for index, request in enumerate(requests)
    ]
