from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.llm_server.conformance.client import Client
from tests.llm_server.conformance.engines import ENGINES, Serve, serving


@pytest.fixture(scope="package", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test, by its name in ENGINES."""
    return str(request.param)


@pytest.fixture(scope="package")
def server(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of the one server that all tests of an engine share."""
    with serving(engine, request, tmp_path_factory.mktemp("home")) as client:
        yield client


@pytest.fixture
def serve(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Serve:
    """Start a server of the test's own."""
    return partial(serving, engine, request, tmp_path)
