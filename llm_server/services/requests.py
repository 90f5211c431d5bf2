"""From a checked body and its prompt to the sequences that the executor gets."""

from collections.abc import Sequence
from dataclasses import replace

from engines.contract import GenerationRequest, Guide
from engines.errors import ContextLengthError
from llm_server.errors import InvalidBodyError
from llm_server.protocol.chat import ChatCompletionRequest
from llm_server.registry import ServedModel
from llm_server.services.prompt import encode_words
from stylers.prompt import Prompt


def generation_request(
    body: ChatCompletionRequest,
    model: ServedModel,
    prompt: Prompt,
    prompt_token_ids: Sequence[int],
    guide: Guide | None,
    answer_id: str,
) -> GenerationRequest:
    """Return the request of a single choice. Raises ContextLengthError."""
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
        stop_token_ids=_stop_token_ids(body, model, prompt, guide),
        guide=guide,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        timeout_s=body.timeout_s,
        adapter=model.adapter,
    )


def _stop_token_ids(
    body: ChatCompletionRequest, model: ServedModel, prompt: Prompt, guide: Guide | None
) -> frozenset[int]:
    """End tokens, unless they are ignored, and the request's own; a stop string that is one token stops as that.

    Where a guide lets an end token come nothing can follow it, so then it ends the answer in any case.
    """
    ends = frozenset() if body.ignore_eos and guide is None else model.end_token_ids
    marks = [*(body.stop or ()), *(() if body.ignore_eos else prompt.stop)]
    marked = (token_id for mark in marks if (token_id := model.tokenizer.token_id(mark)) is not None)
    return ends.union(body.stop_token_ids or (), marked)


def stop_strings(body: ChatCompletionRequest, model: ServedModel, prompt: Prompt) -> list[str]:
    """The request's own, and those of the family's that are no token of this vocabulary."""
    spelled = () if body.ignore_eos else prompt.stop
    return [*(body.stop or ()), *(stop for stop in spelled if model.tokenizer.token_id(stop) is None)]


def check_num_choices(body: ChatCompletionRequest, model: ServedModel) -> None:
    """Refuse more choices than the engine ever holds. Raises InvalidBodyError."""
    info = model.executor.info
    room = info.max_batch_size + info.max_waiting
    if (body.n or 1) > room:
        raise InvalidBodyError(f"n must be at most {room}: so many answers are made or wait at a time here", "n")


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


def _max_tokens(body: ChatCompletionRequest, model: ServedModel, num_prompt_tokens: int) -> int:
    """The bound of the answer: the request's own, else the rest of the context."""
    limit = model.context_length
    wanted = body.answer_limit
    if num_prompt_tokens + (wanted or 1) <= limit:
        return wanted or limit - num_prompt_tokens
    raise too_long(body, model, num_prompt_tokens)


def too_long(
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
