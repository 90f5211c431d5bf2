"""Events of a streamed chat answer, as bytes.

This runs once per token and stream, so what is the same in every chunk of a choice is rendered once.
"""

from collections.abc import Sequence
from json import JSONEncoder

from llm_server.protocol.errors import ErrorBody
from llm_server.routers.logprobs import logprobs_json
from llm_server.services.choice import ChoiceUpdate, TokenPiece
from llm_server.services.usage import Usage
from stylers.output import Delta, ToolCallDelta

DONE = b"data: [DONE]\n\n"
to_json = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ChunkWriter:
    """Writes the chunks of one answer. With `include_usage` all but the last carry `"usage": null`."""

    def __init__(
        self,
        answer_id: str,
        created: int,
        model: str,
        num_choices: int,
        *,
        include_usage: bool,
        reasoning_field: str,
    ) -> None:
        self._reasoning_field = reasoning_field
        self._head = (
            f'data: {{"id":{to_json(answer_id)},"object":"chat.completion.chunk",'
            f'"created":{created},"model":{to_json(model)},"choices":['
        )
        self._deltas = [f'{self._head}{{"index":{index},"delta":' for index in range(num_choices)]
        usage = ',"usage":null' if include_usage else ""
        self._end = f"}}]{usage}}}\n\n"
        self._plain_end = f',"logprobs":null,"finish_reason":null{self._end}'
        self._logprobs: list[list[TokenPiece]] = [[] for _ in range(num_choices)]  # of text that no delta shows

    def opening(self) -> bytes:
        """Return the chunks that open each choice with its role."""
        role = '{"role":"assistant","content":""}'
        return "".join(f"{head}{role}{self._plain_end}" for head in self._deltas).encode()

    def update(self, update: ChoiceUpdate) -> bytes:
        """Return the chunks of one update, none if it shows nothing."""
        if update.finish_reason is None and not update.logprobs:
            head, end, name = self._deltas[update.index], self._plain_end, self._reasoning_field
            return "".join([f"{head}{_delta_json(delta, name)}{end}" for delta in update.deltas]).encode()
        return self._with_logprobs(update).encode()

    def usage(self, usage: Usage) -> bytes:
        """Return the last chunk of a stream whose client asked for usage."""
        return f'{self._head}],"usage":{to_json(usage.to_openai())}}}\n\n'.encode()

    def _with_logprobs(self, update: ChoiceUpdate) -> str:
        chunks = []
        pending = self._logprobs[update.index]
        pending += update.logprobs
        for delta in update.deltas:
            chunks.append(self._chunk(update.index, _delta_json(delta, self._reasoning_field), pending, "null"))
            pending.clear()
        if update.finish_reason is not None:
            chunks.append(self._chunk(update.index, "{}", pending, to_json(update.finish_reason)))
        return "".join(chunks)

    def _chunk(self, index: int, delta: str, logprobs: Sequence[TokenPiece], finish_reason: str) -> str:
        shown = to_json(logprobs_json(logprobs)) if logprobs else "null"
        return f'{self._deltas[index]}{delta},"logprobs":{shown},"finish_reason":{finish_reason}{self._end}'


def error_event(body: ErrorBody) -> bytes:
    """Return the event that tells of an error after the stream has begun."""
    return f"data: {body.model_dump_json()}\n\n".encode()


def _delta_json(delta: Delta, reasoning_field: str) -> str:
    if delta.content is not None and delta.reasoning is None and not delta.tool_calls:
        return f'{{"content":{to_json(delta.content)}}}'
    parts: dict[str, object] = {}
    if delta.reasoning is not None:
        parts[reasoning_field] = delta.reasoning
    if delta.content is not None:
        parts["content"] = delta.content
    if delta.tool_calls:
        parts["tool_calls"] = [_call_json(call) for call in delta.tool_calls]
    return to_json(parts)


def _call_json(call: ToolCallDelta) -> dict[str, object]:
    """A call's id, type and name stand in its first piece only, there with arguments, be they empty."""
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments or ""}}
    function = {"name": call.name, "arguments": call.arguments or ""}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}
