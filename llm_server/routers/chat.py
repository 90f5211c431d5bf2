"""POST /v1/chat/completions."""

import uuid
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llm_server.errors import render_error
from llm_server.middleware import RequestRecord
from llm_server.protocol.chat import ChatCompletionRequest
from llm_server.routers.body import body_schema, read_json
from llm_server.routers.chunks import DONE, ChunkWriter, error_event, to_json
from llm_server.routers.completion import ChoiceCollector, completion_json, prompt_logprobs_json
from llm_server.routers.hang_up import until_hang_up
from llm_server.routers.state import RecordDep, ServerDep
from llm_server.services.answer import ChatAnswer

router = APIRouter()


@router.post("/v1/chat/completions", response_model=None, openapi_extra=body_schema(ChatCompletionRequest))
async def create_chat_completion(request: Request, server: ServerDep, record: RecordDep) -> Response:
    """Answer a chat, whole or as a stream of events. Errors are rendered in llm_server/errors.py."""
    body, num_bytes = await read_json(request, ChatCompletionRequest, server.config.max_body_bytes)
    answer_id = record.answer_id = f"chatcmpl-{uuid.uuid4().hex}"  # not the request's id: a client may send one twice
    answer = await until_hang_up(request, server.chat.open(body, answer_id, num_bytes))
    record.mark_first_token()
    if body.stream:
        writer = ChunkWriter(
            answer_id,
            answer.created,
            answer.model.name,
            len(answer.choices),
            include_usage=body.include_usage,
            reasoning_field=answer.model.reasoning_field,
        )
        return AnswerStream(answer, writer, record, with_usage=body.include_usage)
    try:
        return await until_hang_up(request, _complete(body, answer, answer_id))
    finally:
        _close(answer, record)


class AnswerStream(EventSourceResponse):
    """An answer as events. However the response ends, even before its first byte, the answer is closed."""

    def __init__(self, answer: ChatAnswer, writer: ChunkWriter, record: RequestRecord, *, with_usage: bool) -> None:
        super().__init__(_events(answer, writer, with_usage=with_usage), sep="\n")
        self._answer = answer
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _close(self._answer, self._record)


async def _events(answer: ChatAnswer, writer: ChunkWriter, *, with_usage: bool) -> AsyncIterator[bytes]:
    """Whole events as bytes, which sse-starlette passes on as they are."""
    opening = writer.opening()
    try:
        async for update in answer:
            chunk = opening + writer.update(update)
            opening = b""
            if chunk:
                yield chunk
        yield (writer.usage(answer.usage) if with_usage else b"") + DONE
    except Exception as exc:  # the status is long gone: the client learns of it by an event
        yield error_event(render_error(exc).body) + DONE


async def _complete(body: ChatCompletionRequest, answer: ChatAnswer, answer_id: str) -> Response:
    choices = [ChoiceCollector(index, with_logprobs=bool(body.logprobs)) for index in range(len(answer.choices))]
    async for update in answer:
        choices[update.index].add(update)
    completion = completion_json(answer_id, answer.created, answer.model, choices, answer.usage)
    prompt_logprobs = answer.choices[0].prompt_logprobs
    if prompt_logprobs is not None:
        completion["prompt_logprobs"] = prompt_logprobs_json(prompt_logprobs, answer.model.tokenizer)
    return Response(to_json(completion), media_type="application/json")


def _close(answer: ChatAnswer, record: RequestRecord) -> None:
    """Free the engine's memory and note for the log how it went."""
    answer.close()
    usage = answer.usage
    record.model = answer.model.name
    record.prompt_tokens, record.completion_tokens = usage.prompt_tokens, usage.completion_tokens
    record.finish = ",".join(choice.finish_reason or "unfinished" for choice in answer.choices)
