"""Hugging Face folders converted by optimum-intel compute what transformers computes.

The conversion environment is large and made on request (`make convert-env`); without it the marked tests say so.
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engines.building import BuildError
from engines.folder import EngineFolder
from engines.openvino.builder import build_engine
from engines.openvino.convert_env import REQUIREMENTS, ConvertEnv
from llm_server import paths
from tests.engine_fixtures import build_request
from tests.engines.openvino.paged_model import paged_logits
from tests.engines.openvino.stateful_model import StatefulModel
from tests.hf_folders import write_metadata
from tests.tiny_vocabulary import CHAT_TEMPLATE, byte_pair_vocabulary

REFERENCE = Path(__file__).parents[2] / "hf_reference.py"
TOKEN_IDS = [1, 40, 77, 105, 3, 200, 258, 260, 12, 12, 90, 2, 64, 131, 99, 5] * 20
ENVIRONMENT = ConvertEnv(paths.convert_env(paths.home()))
needs_environment = pytest.mark.skipif(
    not ENVIRONMENT.is_ready, reason=f"there is no conversion environment {ENVIRONMENT.path}: make convert-env"
)


def write_model(architecture: str, folder: Path, engine: Path) -> NDArray[np.float32]:
    """Write a random model and return the logits transformers gives for TOKEN_IDS."""
    write_metadata(folder, engine, vocab_size=len(byte_pair_vocabulary().tokens))
    logits_file = folder.parent / "logits.npy"
    token_ids = ",".join(map(str, TOKEN_IDS))
    command = [str(ENVIRONMENT.python), str(REFERENCE), architecture, str(folder), token_ids, str(logits_file)]
    subprocess.run(command, check=True, capture_output=True)
    logits: NDArray[np.float32] = np.load(logits_file)
    return logits


def convert(folder: Path, environment: Path = ENVIRONMENT.path) -> EngineFolder:
    target = folder.parent / "engine"
    target.mkdir()
    return build_engine(build_request(folder, convert_env=environment), target, "tests")


@needs_environment
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_logits_equal_those_of_transformers(architecture: str, tiny_engine: Path, tmp_path: Path) -> None:
    expected = write_model(architecture, tmp_path / "tiny-hf", tiny_engine)
    engine = convert(tmp_path / "tiny-hf")
    assert expected.std() > 0.5
    np.testing.assert_allclose(StatefulModel(engine.path).logits(TOKEN_IDS), expected, atol=1e-4, rtol=0)
    facts = EngineFolder.load(engine.path, verify=True).description
    assert (facts.model_name, facts.architecture, facts.precision) == ("tiny-hf", architecture, "f16")
    assert {"optimum-intel", "transformers", "torch"} <= facts.versions.keys()
    assert engine.chat_template == CHAT_TEMPLATE
    assert {file.name for file in engine.path.iterdir()} == {*engine.files, "engine.json"}


@needs_environment
@pytest.mark.parametrize(
    ("architecture", "graphs"),
    [
        ("qwen2_vl", {"language", "text_embeddings", "vision_embeddings", "vision_embeddings_merger"}),
        ("llava", {"language", "text_embeddings", "vision_embeddings"}),
    ],
)
def test_a_model_that_reads_images_is_served_for_text_and_kept_whole(
    architecture: str, graphs: set[str], tiny_engine: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny-hf"
    expected = write_model(architecture, folder, tiny_engine)
    (folder / "preprocessor_config.json").write_text("{}")
    engine = convert(folder)
    np.testing.assert_allclose(StatefulModel(engine.path).logits(TOKEN_IDS), expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(paged_logits(engine, TOKEN_IDS, 100, 201), expected, atol=2e-3, rtol=0)
    names = {name for name in engine.files if name.startswith("openvino_")}
    assert names == {f"openvino_{graph}_model.{suffix}" for graph in graphs for suffix in ("xml", "bin")}
    assert {"config.json", "preprocessor_config.json"} <= engine.files.keys()
    assert engine.description.max_sequence_length == 512


@needs_environment
def test_code_in_a_model_folder_is_not_run(tiny_engine: Path, tmp_path: Path) -> None:
    marks = {"modeling_evil.py": tmp_path / "ran-model", "optimum.py": tmp_path / "ran-import"}
    automatic = {"AutoConfig": "modeling_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    folder = write_metadata(tmp_path / "evil", tiny_engine, model_type="evil", auto_map=automatic)
    (folder / "model.safetensors").touch()
    for name, mark in marks.items():
        (folder / name).write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(BuildError, match=r"optimum-intel could not convert .*evil: [^\n]*trust_remote_code[^\n]*$"):
        convert(folder)
    assert not any(mark.exists() for mark in marks.values())


@pytest.mark.parametrize("stamp", [None, "of other requirements"])
def test_without_the_environment_the_command_that_makes_it_is_named(
    stamp: str | None, tiny_engine: Path, tmp_path: Path
) -> None:
    folder = write_metadata(tmp_path / "tiny-hf", tiny_engine)
    (folder / "model.safetensors").touch()
    (tmp_path / "env").mkdir()
    if stamp is not None:
        (tmp_path / "env" / "installed.sha256").write_text(stamp)
    with pytest.raises(BuildError, match="Make it once with: llm-server convert-env"):
        convert(folder, tmp_path / "env")


def test_the_environment_is_pinned_whole_and_without_torchvision() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"torch", "transformers", "optimum-intel", "openvino"} <= names
    assert "torchvision" not in names
