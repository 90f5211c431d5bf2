"""The face every family shares: `build_prompt` on the way in, `new_parser` on the way out.

A family is a subclass, a model of it a row: an instance with its name and what is its own. A row says what it supports
and where its turns end, how a chat is put right before it is rendered, and how its output is read. `for_model` binds
it to a served model's own template and the operator's switches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, Self

from stylers.call_format import CallFormat
from stylers.chat import Chat, JsonObject, ToolDefinition
from stylers.errors import StylerError
from stylers.messages import TemplateDialect, mark_final_message, template_messages, to_system_role
from stylers.output import EngineFinish, IdFactory, OutputParser, ParsedMessage, merge, random_call_id
from stylers.parsing.answer import AnswerGrammar, Grammar, GrammarParser
from stylers.pieces import disguised, with_slots
from stylers.prompt import Prompt
from stylers.template import ChatTemplate, load_template
from stylers.tools import GENERIC_TOOLS, ToolFormat

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
    """What a served model adds to its family, and the operator's switches.

    control_tokens: the tokenizer's special and added tokens; in a request's texts they are text (none: no such check).
    prefer_builder: the prompt is built here even where the model has a template. generic_tools: families without a
    tool format of their own get the generic one. split_reasoning: off, reasoning stays in the content, tags and all.
    """

    chat_template: str | None = None
    bos_token: str = ""
    eos_token: str = ""
    control_tokens: tuple[str, ...] = ()
    prefer_builder: bool = False
    generic_tools: bool = False
    split_reasoning: bool = True


@dataclass(frozen=True)
class Styler:
    """One model family, or a variant of it, by name."""

    name: str
    aliases: tuple[str, ...] = ()
    settings: Settings = field(default=Settings(), kw_only=True)

    stop: ClassVar[tuple[str, ...]] = ()
    think: ClassVar[tuple[str, str] | None] = None  # the tags around reasoning
    tool_format: ClassVar[ToolFormat | None] = None
    slots: ClassVar[Mapping[str, str]] = {}  # the placeholders of images and videos, by kind
    dialect: ClassVar[TemplateDialect] = TemplateDialect()
    builder_shows_tools: ClassVar[bool] = False

    @property
    def supports(self) -> Supports:
        """What the family can do."""
        return Supports(
            tools="native" if self.tool_format else "generic",
            reasoning=self.think is not None,
            images="image" in self.slots,
            video="video" in self.slots,
        )

    @property
    def has_builder(self) -> bool:
        """Whether prompts can be written without the model's template."""
        return type(self).build is not Styler.build

    @property
    def call_format(self) -> CallFormat | None:
        """How calls are written; None where the model can make none."""
        return self._tool_format.calls if self._tool_format else None

    def for_model(
        self,
        *,
        chat_template: str | None = None,
        bos_token: str = "",
        eos_token: str = "",
        control_tokens: Sequence[str] = (),
        prefer_builder: bool = False,
        generic_tools: bool = False,
        split_reasoning: bool = True,
    ) -> Self:
        """Bind to a served model; see Settings. Raises StylerError for a template that does not compile."""
        if chat_template is not None:
            load_template(chat_template)
        settings = Settings(
            chat_template,
            bos_token,
            eos_token,
            tuple(control_tokens),
            prefer_builder,
            generic_tools,
            split_reasoning,
        )
        return replace(self, settings=settings)

    def build_prompt(self, chat: Chat, *, now: datetime | None = None, tools_block: bool = True) -> Prompt:
        """Render a chat; `now` is the date that a template may print.

        Where the prompt's own text ignores tools, the family's block of tools is written into it, unless `tools_block`
        is false.
        """
        self._check(chat)
        control = (*self.settings.control_tokens, *(self.slots.values() if chat.media else ()))
        hidden, disguise = disguised(chat, control, spared="".join(self.think or ()))
        if hidden.tools and not self.shows_tools():
            hidden = self.write_tools(hidden) if tools_block else replace(hidden, tools=())
        text = self._rendered_or_repaired(self.normalise(hidden), now)
        pieces = with_slots(disguise.cut(text), chat.media, self.slot_owners(chat), self.slots)
        return Prompt(pieces, self.stop_strings(chat), self._opens_reasoning(chat, text))

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
        own = replace(self.settings, chat_template=chat_template, bos_token=bos_token, eos_token=eos_token)
        return replace(self, settings=own).build_prompt(chat, now=now, tools_block=tools_block).text

    def new_parser(
        self,
        *,
        tools: Sequence[ToolDefinition | JsonObject] | None = None,
        prefilled_think: bool = False,
        id_factory: IdFactory = random_call_id,
    ) -> OutputParser:
        """Return a parser for one answer. Without `tools` nothing is read as a call."""
        definitions = [
            tool if isinstance(tool, ToolDefinition) else ToolDefinition.from_openai(tool) for tool in tools or ()
        ]
        return GrammarParser(self.grammar(prefilled_think), definitions, id_factory)

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
        """Put right what the family's template would lose without a word; what it renders well stays as it is."""
        return replace(chat, messages=to_system_role(chat.messages))

    def repair(self, chat: Chat) -> Chat:
        """Put right what the family's template refuses, where the meaning is clear."""
        return chat

    def build(self, chat: Chat) -> str:
        """Write the prompt as the family's newest official template would."""
        raise StylerError(f"{self.name} has no built-in prompt builder; its model folder needs a chat template")

    def write_tools(self, chat: Chat) -> Chat:
        """Write tools into the texts of a chat, for a prompt whose own text ignores them."""
        tool_format = self._tool_format
        if tool_format is None:
            raise StylerError(f"{self.name} has no tool format of its own, and generic_tools is off", param="tools")
        return tool_format.write_into_texts(chat)

    def shows_tools(self) -> bool:
        """Whether the prompt's own text shows the request's tools."""
        template = self._template()
        return self.builder_shows_tools if template is None else "tools" in template.variables

    def template_mentions(self, word: str) -> bool:
        """Whether a word stands in the template; the builders know all of their family's."""
        template = self._template()
        return template is None or word in template.source

    def slot_owners(self, chat: Chat) -> tuple[int, ...]:
        """For each slot of the prompt, the number of the image or video it is for."""
        return tuple(range(len(chat.media)))

    def stop_strings(self, chat: Chat) -> tuple[str, ...]:
        """Where generation ends."""
        return self.stop

    def grammar(self, prefilled_think: bool) -> Grammar:
        """How an answer is read."""
        think = self.think if self.settings.split_reasoning else None
        return AnswerGrammar(think, prefilled_think, self._tool_format.reader if self._tool_format else None)

    @property
    def _tool_format(self) -> ToolFormat | None:
        return self.tool_format or (GENERIC_TOOLS if self.settings.generic_tools else None)

    def _template(self) -> ChatTemplate | None:
        source = self.settings.chat_template
        return None if source is None or (self.settings.prefer_builder and self.has_builder) else load_template(source)

    def _check(self, chat: Chat) -> None:
        for media in chat.media:
            if media.kind not in self.slots:
                raise StylerError(f"{self.name} takes no {media.kind}s", param="messages")
        for key in chat.template_kwargs:
            if key in RESERVED_KWARGS:
                raise StylerError(f"{key!r} cannot be set here", param="chat_template_kwargs")

    def _opens_reasoning(self, chat: Chat, text: str) -> bool:
        if self.think is None:
            return False
        opening, closing = self.think
        if chat.continue_final_message and opening in chat.messages[-1].text:
            return text.rfind(opening) > text.rfind(closing)
        return text.rstrip().endswith(opening.rstrip())

    def _rendered_or_repaired(self, chat: Chat, now: datetime | None) -> str:
        try:
            return self._rendered(chat, now)
        except StylerError:
            repaired = self.repair(chat)
            if repaired == chat:
                raise
            return self._rendered(repaired, now)

    def _rendered(self, chat: Chat, now: datetime | None) -> str:
        if not chat.continue_final_message:
            return self._whole(chat, now)
        marked = replace(chat, messages=mark_final_message(chat.messages, CONTINUE_MARK))
        text, mark, rest = self._whole(marked, now).rpartition(CONTINUE_MARK.strip())
        if not mark:
            raise StylerError("the model's prompt does not show the final message", param="continue_final_message")
        return text if rest.startswith(" ") else text.rstrip()  # blanks were trimmed behind the mark, so before it too

    def _whole(self, chat: Chat, now: datetime | None) -> str:
        template = self._template()
        return self.build(chat) if template is None else template.render(self._variables(chat, template), now)

    def _variables(self, chat: Chat, template: ChatTemplate) -> dict[str, object]:
        return {
            **chat.template_kwargs,
            "messages": template_messages(chat.messages, self.dialect, template.reads_parts),
            "tools": [tool.source for tool in chat.tools] or ([] if self.dialect.no_tools == "empty" else None),
            "documents": list(chat.documents) if chat.documents is not None else None,
            "add_generation_prompt": chat.add_generation_prompt,
            "bos_token": self.settings.bos_token,
            "eos_token": self.settings.eos_token,
        }
