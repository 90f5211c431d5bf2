"""How a model prepares images: files that its engine folder keeps as they are, for the side that reads images."""

import shutil
from pathlib import Path

from engines.model_files import CONFIG_FILE, LANGUAGE_IR_FILE

_FILES = (CONFIG_FILE, "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


def keep_processor_files(model: Path, target: Path) -> None:
    """Copy what there is of them from a model's folder into an engine folder that has more than a text model."""
    if (target / LANGUAGE_IR_FILE).is_file():
        for file in (model / name for name in _FILES):
            if file.is_file():
                shutil.copyfile(file, target / file.name)
