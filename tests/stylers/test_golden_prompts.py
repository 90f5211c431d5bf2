"""Every golden prompt, by the official template and, where there is one, by the built-in builder."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

import stylers
from stylers import StylerError
from tests.stylers.data import golden, golden_names, styler_name, template, template_names

PASSED_ON = ("add_generation_prompt", "continue_final_message", "enable_thinking", "thinking", "reasoning_effort")
MEDIA = {"image_url", "video_url"}
Entry = dict[str, Any]


def has_media(entry: Entry) -> bool:
    contents = [message["content"] for message in entry["request"]["messages"]]
    return any(part["type"] in MEDIA for content in contents if isinstance(content, list) for part in content)


def shows_tools(prompt: str, entry: Entry) -> bool:
    descriptions = [tool["function"]["description"] for tool in entry["request"].get("tools") or ()]
    forms = [form for text in descriptions for form in (text, escaped(text), escaped(text, ensure_ascii=False))]
    return any(form in prompt for form in forms)


def escaped(text: str, **kwargs: Any) -> str:
    return json.dumps(text, **kwargs)[1:-1]


def accepted(entries: list[Entry], by_template: bool) -> set[str]:
    """The repaired renderings where there are any, else the plain one; of these, those that show the tools."""
    usable = [e for e in entries if "prompt" in e and not (by_template and e["case"].endswith("__model_code"))]
    prompts = {e["prompt"] for e in usable if "__" in e["case"]} or {e["prompt"] for e in usable}
    return {prompt for prompt in prompts if shows_tools(prompt, entries[0])} or prompts


def render(family: str, entry: Entry, source: str | None, **more: Any) -> str:
    kwargs = entry["kwargs"]
    now = datetime.fromisoformat(kwargs["now"]) if "now" in kwargs else None
    given: dict[str, Any] = {key: kwargs.get(key) or "" for key in ("bos_token", "eos_token")}
    given |= {key: kwargs[key] for key in PASSED_ON if key in kwargs}
    return stylers.get(styler_name(family)).render(entry["request"], chat_template=source, now=now, **given, **more)


def groups_of(family: str) -> Iterator[tuple[str, list[Entry], str | None]]:
    """Each case of a family with its entries, once for the template and once for the builder."""
    groups: dict[str, list[Entry]] = {}
    for entry in golden(family):
        if not has_media(entry):
            groups.setdefault(entry["case"].split("__")[0], []).append(entry)
    for case, entries in groups.items():
        if family in template_names():
            yield case, entries, template(family)
        if family == styler_name(family) and stylers.get(family).has_builder:
            yield case, entries, None


def is_right(family: str, entries: list[Entry], source: str | None) -> bool:
    """Whether the prompt is an accepted one; the template's own text where it ignores the tools."""
    good = accepted(entries, by_template=source is not None)
    tools_ignored = bool(entries[0]["request"].get("tools")) and not any(shows_tools(each, entries[0]) for each in good)
    if not good:  # the template refuses this request; we render it or say why not
        with suppress(StylerError):
            render(family, entries[0], source)
        return True
    return render(family, entries[0], source, tools_block=not tools_ignored) in good


CASES = [
    pytest.param(family, entries, source, id=f"{family}-{case}-{'template' if source else 'builder'}")
    for family in golden_names()
    for case, entries, source in groups_of(family)
]


@pytest.mark.parametrize(("family", "entries", "source"), CASES)
def test_prompt_is_the_golden_one(family: str, entries: list[Entry], source: str | None) -> None:
    assert is_right(family, entries, source)


@pytest.mark.parametrize("family", [name for name in template_names() if name == styler_name(name)])
def test_tools_stand_in_the_prompt_or_are_refused(family: str) -> None:
    entry = next(entry for entry in golden(family) if entry["case"] == "tools_first_turn")
    styler = stylers.get(family)
    if styler.supports.tools == "generic":
        with pytest.raises(StylerError, match="no tool format"):
            render(family, entry, template(family))
        styler = styler.for_model(generic_tools=True, chat_template=template(family))
    else:
        styler = styler.for_model(chat_template=template(family))
    prompt = styler.build_prompt(stylers.Chat.from_openai(entry["request"]), now=datetime(2025, 7, 15)).text
    assert shows_tools(prompt, entry)
    assert all(tool["function"]["name"] in prompt for tool in entry["request"]["tools"])


MEDIA_CASES = [
    pytest.param(family, entry, source, id=f"{family}-{entry['case']}-{'template' if source else 'builder'}")
    for family in golden_names()
    for entry in golden(family)
    for source in ((template(family),) if family in template_names() else ()) + (None,)
    if has_media(entry) and (source or stylers.get(styler_name(family)).has_builder)
]


@pytest.mark.parametrize(("family", "entry", "source"), MEDIA_CASES)
def test_prompt_with_media_is_the_golden_one(family: str, entry: Entry, source: str | None) -> None:
    kwargs = {"num_frames": entry["kwargs"]["frames"]} if "frames" in entry["kwargs"] else {}
    prompt = render(family, {**entry, "request": {**entry["request"], "chat_template_kwargs": kwargs}}, source)
    assert prompt.replace("<imgpad>", "IMAGE_1") == entry["prompt"]  # Qwen-VL has the address where our slot stands
