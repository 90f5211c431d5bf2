"""Engine folders for tests, built once a session."""

from pathlib import Path

import pytest

from llm_server import paths
from llm_server.pull import pull
from llm_server.sources.catalog import DEFAULT_MODEL


@pytest.fixture(scope="session")
def default_engine() -> Path:
    """The engine folder of the real default model, kept in the user's cache between runs."""
    return pull(DEFAULT_MODEL, paths.home())
