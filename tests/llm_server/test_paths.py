"""The home folder follows the platform unless the environment says otherwise."""

from pathlib import Path

import pytest

from llm_server import paths


def test_environment_overrides_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLM_SERVER_HOME", str(tmp_path))
    assert paths.home() == tmp_path
    monkeypatch.setenv("LLM_SERVER_HOME", "~/models")
    assert paths.home() == Path.home() / "models"


def test_cache_folder_is_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_SERVER_HOME", raising=False)
    assert paths.home().is_absolute()
    assert paths.home().name == "llm-server"
    assert paths.engines(paths.home()) == paths.home() / "engines"
