"""Where the server keeps what it downloads and builds."""

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """Return the folder for engine folders: LLM_SERVER_HOME where it is set, else the platform's cache folder."""
    override = os.environ.get("LLM_SERVER_HOME")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("llm-server", appauthor=False)


def engines(home: Path) -> Path:
    """Return the folder that holds one engine folder per model."""
    return home / "engines"


def checkpoints(home: Path) -> Path:
    """Return the folder that holds checkpoints which were downloaded to be served as they are."""
    return home / "checkpoints"


def convert_env(home: Path) -> Path:
    """Return the folder of the environment that converts Hugging Face models."""
    return home / "convert-env"
