import signal
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.engine_fixtures", "tests.trtllm_fixtures"]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Let child processes be interrupted: what a shell runs in the background ignores SIGINT, and so would they."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
