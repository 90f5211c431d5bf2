"""Body of POST /v1/chat/completions. Source: OpenAI API reference, "Create chat completion".

Three sorts of fields: those declared here are honoured, by us or by the executor, which refuses by name what it
cannot do; those in NOT_HONOURED are known and refused unless they ask for nothing; all others are ignored.
"""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, model_validator

from llm_server.errors import InvalidBodyError, UnsupportedParameterError
from llm_server.protocol.guides import GuideFields
from llm_server.protocol.sampling import MAX_ALTERNATIVES, RequestBody, SamplingFields

CHAT_FIELDS = (
    "messages",
    "tools",
    "tool_choice",
    "documents",
    "reasoning_effort",
    "enable_thinking",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
)
"""What `Chat.from_openai` reads."""


class StreamOptions(RequestBody):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ChatCompletionRequest(SamplingFields, GuideFields):
    """A chat to be continued."""

    # Known fields that are refused, each with the values that ask for nothing (null always does).
    NOT_HONOURED: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "allowed_token_ids": (),
        "audio": (),
        "best_of": (1,),
        "chat_template": (),
        "echo": (False,),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "include_reasoning": (True,),
        "kv_transfer_params": (),
        "length_penalty": (1, 1.0),
        "logits_processors": ([],),
        "mm_processor_kwargs": ({},),
        "modalities": (["text"], []),
        "return_token_ids": (False,),
        "return_tokens_as_token_ids": (False,),
        "structural_tag": (),
        "truncate_prompt_tokens": (),
        "use_beam_search": (False,),
        "verbosity": ("medium",),
        "web_search_options": (),
    }

    model: str
    messages: list[dict[str, object]] = Field(min_length=1)
    tools: list[dict[str, object]] | None = None
    tool_choice: object = None
    parallel_tool_calls: bool | None = None
    documents: list[dict[str, object]] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(
        default=None, ge=1, description="Sampled tokens, reasoning included; goes before max_tokens."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_not_honoured(cls, data: dict[str, object]) -> dict[str, object]:
        for name in cls.NOT_HONOURED.keys() & data.keys():
            if data[name] is not None and data[name] not in cls.NOT_HONOURED[name]:
                raise UnsupportedParameterError(f"{name} is not supported by this server", name)
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise InvalidBodyError("top_logprobs needs logprobs to be true", "top_logprobs")
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidBodyError("prompt_logprobs cannot be streamed", "prompt_logprobs")
        return self

    @property
    def answer_limit(self) -> int | None:
        """The request's own bound on the answer, in tokens."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_alternatives(self) -> int | None:
        """How many alternatives are reported beside each token; None without logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def chat(self) -> Mapping[str, object]:
        """Return the part of the body that the styler reads."""
        return {name: value for name in CHAT_FIELDS if (value := getattr(self, name)) is not None}
