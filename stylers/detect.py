"""Which family a model folder belongs to."""

from collections.abc import Mapping

from stylers.registry import REGISTERED


def detect(config: Mapping[str, object] | None, chat_template: str | None, model_name: str) -> str:
    """Return the styler's name for a model, from its config.json, its template and its name; else "generic"."""
    name = model_name.lower().rsplit("/", 1)[-1]
    if "smollm2" in name and "smollm2" in REGISTERED:
        return "smollm2"
    return "generic"
