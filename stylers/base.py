"""The face every family shares: `build_prompt` on the way in, `new_parser` on the way out.

A family is a subclass, a model of it a row: an instance with its name and what is its own. A row says what it supports
and where its turns end, how a chat is put right before it is rendered, and how its output is read. `for_model` binds
it to a served model's own template and the operator's switches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, Self

from stylers.chat import Chat, JsonObject, ToolDefinition
from stylers.errors import StylerError
from stylers.messages import TemplateDialect, mark_final_message, template_messages, to_system_role
from stylers.output import EngineFinish, IdFactory, OutputParser, ParsedMessage, PlainParser, merge, random_call_id
from stylers.prompt import Prompt, TextPiece
from stylers.template import ChatTemplate, load_template

CONTINUE_MARK = "\uf8f0\uf8f1 "  # stands behind a final message that is to be continued
REQUEST_FLAGS = ("add_generation_prompt", "continue_final_message")
RESERVED_KWARGS = frozenset(
    (*REQUEST_FLAGS, "messages", "tools", "documents", "bos_token", "eos_token", "strftime_now")
)


@dataclass(frozen=True, slots=True)
class Supports:
    """What a family can do. tools: in a format of its own, or only in the generic one, behind a switch."""

    tools: Literal["native", "generic"] = "generic"
    reasoning: bool = False
    images: bool = False
    video: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What a served model adds to its family: its template and special tokens, and the operator's switches."""

    chat_template: str | None = None
    bos_token: str = ""
    eos_token: str = ""
    prefer_builder: bool = False  # build the prompt here even where the model has a template


@dataclass(frozen=True)
class Styler:
    """One model family, or a variant of it, by name."""

    name: str
    aliases: tuple[str, ...] = ()
    settings: Settings = field(default=Settings(), kw_only=True)

    supports: ClassVar[Supports] = Supports()
    stop: ClassVar[tuple[str, ...]] = ()
    dialect: ClassVar[TemplateDialect] = TemplateDialect()

    def for_model(
        self,
        *,
        chat_template: str | None = None,
        bos_token: str = "",
        eos_token: str = "",
        prefer_builder: bool = False,
    ) -> Self:
        """Bind to a served model. Without a template the built-in builder writes the prompts."""
        if chat_template is not None:
            load_template(chat_template)  # a template that does not compile stops the start, not the first request
        return replace(self, settings=Settings(chat_template, bos_token, eos_token, prefer_builder))

    def build_prompt(self, chat: Chat, *, now: datetime | None = None, tools_block: bool = True) -> Prompt:
        """Render a chat; `now` is the date that a template may print.

        Where the prompt's own text ignores tools, the family's block of tools is written into it, unless `tools_block`
        is false.
        """
        self._check(chat)
        text = self._rendered(self.normalise(chat), now)
        return Prompt((TextPiece(text),), stop=self.stop)

    def render(
        self,
        request: JsonObject,
        *,
        chat_template: str | None = None,
        bos_token: str = "",
        eos_token: str = "",
        now: datetime | None = None,
        tools_block: bool = True,
        **template_kwargs: object,
    ) -> str:
        """Render an OpenAI request as it arrives. Without `chat_template`, by the built-in builder."""
        flags = {key: template_kwargs.pop(key) for key in REQUEST_FLAGS if key in template_kwargs}
        chat = Chat.from_openai({**request, **flags})
        chat = replace(chat, template_kwargs={**chat.template_kwargs, **template_kwargs})
        bound = self.for_model(chat_template=chat_template, bos_token=bos_token, eos_token=eos_token)
        return bound.build_prompt(chat, now=now, tools_block=tools_block).text

    def new_parser(
        self,
        *,
        tools: Sequence[ToolDefinition | JsonObject] | None = None,
        prefilled_think: bool = False,
        id_factory: IdFactory = random_call_id,
    ) -> OutputParser:
        """Return a parser for one answer. Without `tools` nothing is read as a call."""
        return PlainParser()

    def parse(
        self,
        text: str,
        *,
        tools: Sequence[ToolDefinition | JsonObject] | None = None,
        prefilled_think: bool = False,
        engine_finish: EngineFinish = "stop",
        id_factory: IdFactory = random_call_id,
    ) -> ParsedMessage:
        """Read a whole answer; it says what the stream of it would say."""
        parser = self.new_parser(tools=tools, prefilled_think=prefilled_think, id_factory=id_factory)
        deltas = [*parser.feed(text), *parser.flush(engine_finish)]
        return merge(deltas, parser.finish_reason)

    def normalise(self, chat: Chat) -> Chat:
        """Put right what the family's template would choke on or lose."""
        return replace(chat, messages=to_system_role(chat.messages))

    def build(self, chat: Chat) -> str:
        """Write the prompt as the family's newest official template would."""
        raise StylerError(f"{self.name} has no built-in prompt builder; its model folder needs a chat template")

    def _check(self, chat: Chat) -> None:
        for media in chat.media:
            if not (self.supports.images if media.kind == "image" else self.supports.video):
                raise StylerError(f"{self.name} takes no {media.kind}s", param="messages")
        for key in chat.template_kwargs:
            if key in RESERVED_KWARGS:
                raise StylerError(f"{key!r} cannot be set here", param="chat_template_kwargs")

    def _rendered(self, chat: Chat, now: datetime | None) -> str:
        if not chat.continue_final_message:
            return self._whole(chat, now)
        marked = replace(chat, messages=mark_final_message(chat.messages, CONTINUE_MARK))
        text, mark, rest = self._whole(marked, now).rpartition(CONTINUE_MARK.strip())
        if not mark:
            raise StylerError("the model's prompt does not show the final message", param="continue_final_message")
        return text if rest.startswith(" ") else text.rstrip()  # blanks were trimmed behind the mark, so before it too

    def _whole(self, chat: Chat, now: datetime | None) -> str:
        source = self.settings.chat_template
        if source is None or self.settings.prefer_builder:
            return self.build(chat)
        template = load_template(source)
        return template.render(self._template_variables(chat, template), now)

    def _template_variables(self, chat: Chat, template: ChatTemplate) -> Mapping[str, object]:
        return {
            **chat.template_kwargs,
            "messages": template_messages(chat.messages, self.dialect, keep_parts=template.reads_parts),
            "tools": [tool.source for tool in chat.tools] or None,
            "documents": list(chat.documents) if chat.documents is not None else None,
            "add_generation_prompt": chat.add_generation_prompt,
            "bos_token": self.settings.bos_token,
            "eos_token": self.settings.eos_token,
        }
