"""Engine folders for tests, built once a session."""

from pathlib import Path

import pytest

from engines.openvino.builder import build_engine
from llm_server import paths
from llm_server.pull import pull
from llm_server.sources.catalog import DEFAULT_MODEL
from tests.tiny_gguf import TinyModel, write_tiny_gguf


def build_tiny_engine(folder: Path, model: TinyModel | None = None) -> Path:
    """Write a tiny GGUF file into `folder`, build its engine folder beside it and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf_path = write_tiny_gguf(folder / "tiny.gguf", model)
    engine = folder / "engine"
    engine.mkdir()
    build_engine(gguf_path, engine, source=f"gguf:{gguf_path}", source_sha256="0" * 64, builder="tests", versions={})
    return engine


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine folder of a tiny random llama with f32 weights; its GGUF file is ../tiny.gguf."""
    return build_tiny_engine(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def default_engine() -> Path:
    """The engine folder of the real default model, kept in the user's cache between runs."""
    return pull(DEFAULT_MODEL, paths.home())
