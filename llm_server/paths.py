"""Where the server keeps what it downloads and builds, and finds what it builds with."""

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """Return the folder for engine folders: LLM_SERVER_HOME where it is set, else the platform's cache folder."""
    override = os.environ.get("LLM_SERVER_HOME")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("llm-server", appauthor=False)


def trtllm_examples() -> Path | None:
    """Return the examples folder of TensorRT-LLM where TRTLLM_EXAMPLES names one."""
    named = os.environ.get("TRTLLM_EXAMPLES")
    return Path(named).expanduser() if named else None


def engines(home: Path) -> Path:
    """Return the folder that holds one engine folder per model."""
    return home / "engines"


def checkpoints(home: Path) -> Path:
    """Return the folder that holds checkpoints which were downloaded to be served as they are."""
    return home / "checkpoints"


def convert_env(home: Path) -> Path:
    """Return the folder of the environment that converts Hugging Face models."""
    return home / "convert-env"
