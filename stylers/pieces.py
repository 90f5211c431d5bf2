"""Control strings that a user typed are text: they are disguised before rendering and put back behind it.

While a chat is rendered, each control string in its texts is one private-use character. Behind it the prompt is cut at
the control strings that stand in it, which are all the template's, and the stand-ins become text again, in pieces that
the tokenizer reads without special or added tokens. A prompt without disguises stays one piece.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from stylers.chat import Chat, JsonObject, Media, Message, Role, Text, ToolCall, ToolDefinition
from stylers.errors import StylerError
from stylers.literal_search import any_of
from stylers.prompt import ImageSlot, Piece, TextPiece

PRIVATE_USE = range(0x100000, 0x10FFFD)


@dataclass(frozen=True, slots=True)
class Disguise:
    """The stand-ins of one request's control strings; empty where it has none."""

    stand_ins: Mapping[str, str]  # control string -> private-use character
    control: re.Pattern[str] | None = None

    def put_back(self, text: str) -> str:
        """Write the control strings where their stand-ins are."""
        return text.translate({ord(stand_in): control for control, stand_in in self.stand_ins.items()})

    def cut(self, text: str) -> list[TextPiece]:
        """Cut a rendered text at its control strings."""
        if self.control is None:
            return [TextPiece(text)]
        parts = self.control.split(text)  # text and control strings by turns
        pieces = [TextPiece(self.put_back(part), literal=not index % 2) for index, part in enumerate(parts)]
        return [piece for piece in pieces if piece.text]


def disguised(chat: Chat, control_tokens: Sequence[str], spared: str) -> tuple[Chat, Disguise]:
    """Disguise the control strings in a chat's texts.

    Those that stand in `spared`, the tags of reasoning, stay in assistant messages: histories need them.
    """
    if not control_tokens:
        return chat, Disguise({})
    control = _any_of(tuple(control_tokens))

    def stays(token: str, is_assistant: bool) -> bool:
        return is_assistant and token in spared

    texts = texts_of(chat)
    seen = {token for text, by in texts for token in control.findall(text) if not stays(token, by)}
    beginnings = _beginnings(tuple(control_tokens))
    begun = {begin for part in inner_parts(chat) if (begin := beginnings.end_of(part))}
    if not seen | begun:
        return chat, Disguise({})
    used = set().union(*(text for text, _ in texts))
    free = (chr(code) for code in PRIVATE_USE if chr(code) not in used)
    stand_ins = dict(zip(sorted(seen | begun), free, strict=False))
    if len(stand_ins) < len(seen | begun):
        raise StylerError("the request uses every private-use character and control tokens as well", param="messages")

    def disguise(text: str, is_assistant: bool) -> str:
        return control.sub(lambda found: found[0] if stays(found[0], is_assistant) else stand_ins[found[0]], text)

    def disguise_end(text: str) -> str:
        begin = beginnings.end_of(text)
        head, _, blanks = text.rpartition(begin) if begin else (text, "", "")
        return f"{head}{stand_ins[begin]}{blanks}" if begin else text

    hidden = rewrite_chat(rewrite_inner_parts(chat, disguise_end), disguise)
    return hidden, Disguise(stand_ins, control)


def inner_parts(chat: Chat) -> list[str]:
    """Return the text parts that other parts follow: templates may print them back to back."""
    parts: list[str] = []

    def note(text: str) -> str:
        parts.append(text)
        return text

    rewrite_inner_parts(chat, note)
    return parts


def rewrite_inner_parts(chat: Chat, rewrite: Callable[[str], str]) -> Chat:
    """Rewrite the text parts that other parts follow."""

    def rewritten(message: Message) -> Message:
        if message.content is None or isinstance(message.content, str) or len(message.content) < 2:
            return message
        *inner, last = message.content
        content = (*(part if isinstance(part, Media) else Text(rewrite(part.text)) for part in inner), last)
        return replace(message, content=content)

    return replace(chat, messages=tuple(map(rewritten, chat.messages)))


@dataclass(frozen=True, slots=True)
class Beginnings:
    """All proper beginnings of control strings, and the length of the longest."""

    texts: frozenset[str]
    longest: int

    def end_of(self, text: str) -> str:
        """Return the longest beginning that a text ends with, but for blanks."""
        text = text[-2 * self.longest :].rstrip() or text.rstrip()
        sizes = range(min(self.longest, len(text)), 0, -1)
        return next((text[-size:] for size in sizes if text[-size:] in self.texts), "")


@lru_cache(maxsize=64)
def _beginnings(control_tokens: tuple[str, ...]) -> Beginnings:
    texts = frozenset(token[:size] for token in control_tokens for size in range(1, len(token)))
    return Beginnings(texts, max(map(len, texts), default=0))


@lru_cache(maxsize=64)
def _any_of(literals: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern with one group for any of them, longer ones first."""
    return re.compile(f"({any_of(literals)})")


def texts_of(chat: Chat) -> list[tuple[str, bool]]:
    """Return every text of a chat that came from the request, and whether the assistant wrote it."""
    texts: list[tuple[str, bool]] = []

    def note(text: str, is_assistant: bool) -> str:
        texts.append((text, is_assistant))
        return text

    rewrite_chat(chat, note)
    return texts


Rewrite = Callable[[str, bool], str]  # gets a text and whether the assistant wrote it


def rewrite_chat(chat: Chat, rewrite: Rewrite) -> Chat:
    """Rewrite every text of a chat that came from the request."""

    def plain(text: str) -> str:
        return rewrite(text, False)

    return replace(
        chat,
        messages=tuple(_message(message, rewrite) for message in chat.messages),
        tools=tuple(_tool(tool, plain) for tool in chat.tools),
        documents=None if chat.documents is None else tuple(_object(each, plain) for each in chat.documents),
        template_kwargs=_object(chat.template_kwargs, plain),
    )


def _message(message: Message, rewrite: Rewrite) -> Message:
    def own(text: str) -> str:
        return rewrite(text, message.role == Role.ASSISTANT)

    content = message.content
    if isinstance(content, str):
        content = own(content)
    elif content is not None:
        content = tuple(part if isinstance(part, Media) else Text(own(part.text)) for part in content)
    return replace(
        message,
        content=content,
        name=message.name and own(message.name),
        reasoning=message.reasoning and own(message.reasoning),
        tool_calls=tuple(ToolCall(own(call.name), own(call.arguments), call.id) for call in message.tool_calls),
    )


def _tool(tool: ToolDefinition, rewrite: Callable[[str], str]) -> ToolDefinition:
    return ToolDefinition(
        name=rewrite(tool.name),
        description=rewrite(tool.description),
        parameters=_object(tool.parameters, rewrite),
        source=_object(tool.source, rewrite),
    )


def _object(value: JsonObject, rewrite: Callable[[str], str]) -> dict[str, object]:
    return {rewrite(key): _value(item, rewrite) for key, item in value.items()}


def _value(value: object, rewrite: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, Mapping):
        return _object(value, rewrite)
    if isinstance(value, list | tuple):
        return [_value(item, rewrite) for item in value]
    return value


def with_slots(
    pieces: Iterable[TextPiece], media: Sequence[Media], owners: Sequence[int], placeholders: Mapping[str, str]
) -> tuple[Piece, ...]:
    """Cut the places of images and videos out of the pieces; `owners` are the media they are for, in order.

    Raises StylerError where the prompt has another number of places.
    """
    if not media:
        return tuple(pieces)
    place = _any_of(tuple(placeholders.values()))
    cut: list[Piece] = []
    count = 0
    for piece in pieces:
        parts = [piece.text] if piece.literal else place.split(piece.text)  # text and places by turns
        for index, part in enumerate(parts):
            if index % 2 and count < len(owners):
                cut.append(ImageSlot(part, owners[count], media[owners[count]].kind))
            elif part:
                cut.append(replace(piece, text=part))
            count += index % 2
    if count != len(owners):
        raise StylerError(f"the prompt has {count} places where {len(owners)} are needed for media", param="messages")
    return tuple(cut)
