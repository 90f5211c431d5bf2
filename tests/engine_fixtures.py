"""Engine folders for tests, built once a session."""

from pathlib import Path

import pytest

from engines.building import BuildRequest
from engines.model_files import ModelFiles
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
    build_engine(build_request(gguf_path), engine, "tests")
    return engine


def build_request(model: Path, precision: str = "f16", convert_env: Path | None = None) -> BuildRequest:
    """Ask for the engine of a model on disk."""
    return BuildRequest(
        ModelFiles.find(model),
        name=model.stem,
        source=f"tests:{model}",
        source_sha256="0" * 64,
        precision=precision,
        convert_env=convert_env,
    )


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine folder of a tiny random llama with f32 weights; its GGUF file is ../tiny.gguf."""
    return build_tiny_engine(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def default_engine() -> Path:
    """The engine folder of the real default model, kept in the user's cache between runs."""
    return pull(DEFAULT_MODEL, paths.home())
