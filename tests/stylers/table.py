"""The table of families in docs/stylers.md: `python -m tests.stylers.table` writes it anew."""

from collections import Counter
from pathlib import Path

import stylers
from stylers import Styler
from tests.stylers.data import golden_names, styler_name
from tests.stylers.test_golden_prompts import accepted, groups_of, is_right

PAGE = Path("docs/stylers.md")
BEGIN, END = "<!-- table: python -m tests.stylers.table -->\n", "<!-- end of table -->"
HEAD = (
    "| name | aliases | tools | reasoning | media | template | builder | where the prompt differs |\n"
    + "| --- " * 8
    + "|\n"
)
IN_TEXT = "the template ignores tools: they stand in the texts"
DIFFERENCES = {
    "chatglm3": "the template ignores tools: the builder writes them as the model's code does",
    "glm-4-9b-chat": "tools and calls are put where the template looks for them",
    "phi-4-mini": "tools are put where the template looks for them; calls, which it drops, stand in the texts",
    "deepseek-v3": IN_TEXT,
    "deepseek-v3.1": "the template shows no tool definitions: they stand in the system text",
    "deepseek-r1-distill-llama": IN_TEXT,
    "deepseek-r1-distill-qwen": IN_TEXT,
    "gemma-3": f"{IN_TEXT}; roles alternate",
    "gemma-2": "no system role: its text stands in the first question; roles alternate",
    "hermes-3": IN_TEXT,
    "internlm2": IN_TEXT,
    "internlm2.5": IN_TEXT,
    "llama-3.1": "parallel calls are turns of their own",
    "llama-3.2": "parallel calls are turns of their own",
    "llama-3.2-vision": "parallel calls are turns of their own",
    "llama-3.3": "parallel calls are turns of their own",
    "mistral-nemo": "roles alternate, ids are shortened to nine letters",
    "mistral-small-24b-2501": "roles alternate, results are the user's",
    "mistral-small-3.2": "roles alternate, ids are shortened to nine letters",
    "kimi-k2": "calls without an id are numbered",
    "gpt-oss": "text beside reasoning and a call joins the reasoning",
    "gemma-4": "results get the name of their function",
    "qwen-react": "tools stand in the last question, calls in the assistant's turns",
}


def scores(family: str) -> dict[bool, Counter[bool]]:
    """How many golden prompts come out right, by template (True) and by builder, for all revisions of a family."""
    found = {True: Counter[bool](), False: Counter[bool]()}
    for revision in golden_names():
        if stylers.get(styler_name(revision)).name == family:
            for _, entries, source in groups_of(revision):
                if accepted(entries, by_template=source is not None):
                    found[source is not None][is_right(revision, entries, source)] += 1
    return found


def shown(score: Counter[bool]) -> str:
    return f"{score[True]} of {score.total()}" if score else "–"  # noqa: RUF001 - a dash is meant


def row(styler: Styler) -> str:
    supports = styler.supports
    media = ", ".join(kind for kind, has in (("images", supports.images), ("video", supports.video)) if has)
    score = scores(styler.name)
    cells = (
        f"`{styler.name}`",
        ", ".join(f"`{alias}`" for alias in styler.aliases),
        supports.tools,
        "yes" if supports.reasoning else "",
        media,
        shown(score[True]),
        shown(score[False]),
        DIFFERENCES.get(styler.name, ""),
    )
    return "| " + " | ".join(cells) + " |\n"


def table() -> str:
    return HEAD + "".join(row(stylers.get(name)) for name in stylers.names())


def page_with(text: str, page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(table(), PAGE.read_text("utf-8")), "utf-8")
