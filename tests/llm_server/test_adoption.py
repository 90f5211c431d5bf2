"""Checkpoints and TensorRT engines are described below the home, and served where they lie."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engines.folder import EngineFolder
from engines.trtllm.errors import TensorRTLLMError
from llm_server import paths
from llm_server.adoption import adopt
from llm_server.config import ConfigError, ModelConfig
from llm_server.inventory import list_models
from llm_server.pull import pull, remove
from llm_server.sources.catalog import DEFAULT_MODEL
from llm_server.sources.hub import HubSource
from tests.llm_server.sources.hub_endpoint import HubEndpoint
from tests.tiny_gguf import write_tiny_gguf
from tests.trtllm_fixtures import engine_config, write_checkpoint, write_prebuilt


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "Tiny-Llama", tiny_checkpoint / "tokenizer.json")


def state_of(folder: Path) -> int:
    return (folder / "engine.json").stat().st_ino


def test_a_checkpoint_is_described_once_and_again_when_it_changes(checkpoint: Path, home: Path) -> None:
    folder = adopt(str(checkpoint), home)
    assert folder == paths.engines(home) / "Tiny-Llama.trtllm"
    assert EngineFolder.load(folder).description.source == f"folder:{checkpoint}"
    before = state_of(folder)
    assert (adopt(str(checkpoint), home), state_of(folder)) == (folder, before)
    assert adopt(folder.name, home) == adopt(str(folder), home) == folder
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "temperature": 0.5}))
    assert EngineFolder.load(adopt(str(checkpoint), home)).generation_config() == {"temperature": 0.5}


def test_a_prebuilt_engine_takes_its_limits_from_itself_and_its_texts_from_the_tokenizers_folder(
    checkpoint: Path, home: Path, tmp_path: Path
) -> None:
    engine = write_prebuilt(tmp_path / "1-gpu", engine_config(max_seq_len=256))
    with pytest.raises(TensorRTLLMError, match=r"1-gpu has no tokenizer\.json; .* with --tokenizer"):
        adopt(str(engine), home)
    folder = EngineFolder.load(adopt(str(engine), home, checkpoint))
    description = folder.description
    assert (description.max_sequence_length, description.vocab_size, description.precision) == (256, 300, "float16")
    assert (description.model_name, description.eos_text) == ("Tiny-Llama", "<|im_end|>")
    assert folder.chat_template is not None
    assert json.loads((folder.path / "trtllm.json").read_text()) == {"kind": "engine", "path": str(engine)}
    shutil.copyfile(checkpoint / "tokenizer.json", engine / "tokenizer.json")
    beside = EngineFolder.load(adopt(str(engine), home)).description
    assert set(description.end_token_ids) == set(beside.end_token_ids)  # known by their spelling alone


def test_an_engine_without_all_its_ranks_is_refused(checkpoint: Path, home: Path, tmp_path: Path) -> None:
    engine = write_prebuilt(tmp_path / "engine", engine_config(tp_size=2))
    (engine / "rank1.engine").unlink()
    with pytest.raises(TensorRTLLMError, match=r"lacks rank1\.engine of an engine for 2 GPUs"):
        adopt(str(engine), home, checkpoint)
    assert not list_of(home)


def list_of(home: Path) -> list[str]:
    return [row.model for row in list_models(home) if row.engine == "trtllm"]


def test_a_checkpoint_of_tensorrt_llm_is_refused_with_the_command_that_builds_it(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    config = {"architecture": "LlamaForCausalLM", "dtype": "float16", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(TensorRTLLMError, match=rf"trtllm-build --checkpoint_dir {folder} .*--max_seq_len 512"):
        adopt(str(folder), home)


def test_models_lists_and_rm_removes_the_description_only(checkpoint: Path, home: Path) -> None:
    folder = adopt(str(checkpoint), home)
    assert list_of(home) == [folder.name]
    assert remove(folder.name, home) > 0
    assert (folder.exists(), (checkpoint / "config.json").exists(), list_of(home)) == (False, True, [])


def test_a_checkpoint_on_the_hub_is_fetched_once(
    checkpoint: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "only-gguf").mkdir()
    write_tiny_gguf(tmp_path / "only-gguf" / "model.gguf")
    with HubEndpoint({"org/Tiny": checkpoint, "org/only-gguf": tmp_path / "only-gguf"}).serving() as hub:
        monkeypatch.setattr("llm_server.sources.hub.HubSource", partial(HubSource, endpoint=hub.url))
        folder = adopt("hf:org/Tiny@main", home)
        with pytest.raises(ConfigError, match="hf:org/only-gguf has no Hugging Face checkpoint"):
            adopt("hf:org/only-gguf", home)
    assert folder == paths.engines(home) / "Tiny.trtllm"
    assert EngineFolder.load(folder).description.source == "hf:org/Tiny@main"
    assert (paths.checkpoints(home) / "org--Tiny@main" / "model.safetensors").is_file()
    assert [path.name for path in paths.checkpoints(home).iterdir() if path.is_dir()] == ["org--Tiny@main"]
    assert adopt("hf:org/Tiny@main", home) == folder  # the hub is gone


def other_engine(home: Path, tmp_path: Path) -> str:
    return pull(str(write_tiny_gguf(tmp_path / "tiny.gguf")), home).name


def graph(home: Path, tmp_path: Path) -> str:
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "openvino_model.xml").touch()
    return str(tmp_path / "ir")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda home, tmp_path: DEFAULT_MODEL, "is a GGUF file"),
        (lambda home, tmp_path: str(write_tiny_gguf(tmp_path / "tiny.gguf")), r"tiny\.gguf is a file"),
        (lambda home, tmp_path: "no-such-model", "there is no folder"),
        (lambda home, tmp_path: "hf:org/name#model.gguf", "has no Hugging Face checkpoint"),
        (lambda home, tmp_path: "hf:nonsense", "does not have the form org/name"),
        (graph, "is a graph of OpenVINO"),
        (other_engine, "was built for the engine openvino"),
    ],
)
def test_what_trtllm_cannot_serve_is_refused_with_what_it_can(
    model: Callable[[Path, Path], str], reason: str, home: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        adopt(model(home, tmp_path), home)


def test_a_tokenizer_is_a_setting_of_trtllm_and_of_folders_without_one(checkpoint: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer is a setting of the engine trtllm"):
        ModelConfig(tokenizer=checkpoint)
    with pytest.raises(ConfigError, match="has a tokenizer of its own"):
        adopt(str(adopt(str(checkpoint), home)), home, checkpoint)
