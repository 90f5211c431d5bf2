"""Which model family an engine folder belongs to."""

import stylers
from engines.folder import EngineFolder


def styler_name(folder: EngineFolder, chat_template: str | None) -> str:
    """Return the name of the styler for a folder that is served with this template.

    Detected anew at every start from what engine.json keeps of the model's configuration: then a family that this
    version has learnt is found in folders built before.
    """
    description = folder.description
    return description.styler or stylers.detect(description.model_config, chat_template, description.model_name)
