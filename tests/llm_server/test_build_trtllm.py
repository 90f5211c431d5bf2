"""`llm-server build --engine trtllm`: planned, built, kept up to date, and whole or not there at all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engines.folder import EngineFolder
from engines.trtllm.location import ModelKind, ModelLocation
from llm_server import cli, paths
from llm_server.adoption import adopt
from tests.engines.trtllm.building.checkpoints import write_safetensors
from tests.fakes.trtllm_scripts import write_examples
from tests.trtllm_fixtures import FAKES, write_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "Tiny-Llama", tiny_checkpoint / "tokenizer.json", intermediate_size=128)
    write_safetensors(folder / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": (64, 128)})
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_SERVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRTLLM_EXAMPLES", str(write_examples(tmp_path / "examples")))
    monkeypatch.setenv("PATH", f"{FAKES / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "home"


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def build(capsys: pytest.CaptureFixture[str], model: Path, *options: str) -> tuple[int, str, str]:
    return outcome(capsys, "build", str(model), "--engine", "trtllm", *options)


def test_a_dry_run_shows_commands_and_memory_and_writes_nothing(
    model: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = build(
        capsys, model, "--dry-run", "--quantization", "fp8", "--tp", "2", "--gpu-memory-gib", "80", "--examples", "/ex"
    )
    assert (code, home.exists()) == (0, False)
    folder = paths.engines(home) / "tiny-llama-trtllm-fp8-tp2"
    assert out.splitlines()[:5] == [
        f"source     folder:{model}",
        "engine     trtllm",
        f"folder     {folder}",
        "download   nothing",
        "build      yes: it is not here yet",
    ]
    assert "/ex/quantization/quantize.py \\\n    --model_dir" in out
    assert f"trtllm-build \\\n    --checkpoint_dir {folder}.converted \\\n    --output_dir {folder} \\\n" in out
    assert "sequences of 512 tokens at a time" in out
    assert "known limit: the number of key-value heads must be divisible by --tp" in out


def test_a_built_engine_is_kept_until_options_or_source_change_and_found_by_name(
    model: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = paths.engines(home) / "tiny-llama-trtllm"
    code, out, err = build(capsys, model, "--max-batch-size", "8")
    assert (code, out) == (0, f"ready: {folder}\n")
    assert "Serializing engine to" in err
    assert ModelLocation.read(folder).kind is ModelKind.ENGINE
    assert build(capsys, model, "--max-batch-size", "8", "--dry-run")[1].count("no: nothing has changed") == 1
    assert "yes: it was built with other options" in build(capsys, model, "--dry-run")[1]
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    assert "yes: its source has changed" in build(capsys, model, "--max-batch-size", "8", "--dry-run")[1]
    assert adopt("tiny-llama-trtllm", home) == adopt(str(folder), home) == folder
    assert "trtllm" in outcome(capsys, "models")[1]


def test_a_moved_engine_folder_needs_nothing_else(
    model: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(capsys, model, "--out", str(tmp_path / "mine"))[0] == 0
    moved = (tmp_path / "mine").rename(tmp_path / "elsewhere")
    assert EngineFolder.load(moved, verify=True).chat_template is not None
    assert ModelLocation.read(moved).path.resolve() == moved


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--tp", "2"), "--tp is not an option of the engine openvino"),
        (("--engine", "openvino", "--gather-logits"), "--gather-logits is not an option of the engine openvino"),
        (("--engine", "trtllm", "--precision", "int8"), "--precision is not an option of the engine trtllm"),
        (("--engine", "cuda"), "engine 'cuda' is not one of openvino, trtllm"),
        (("--engine", "trtllm", "--quantization", "int3"), "--quantization: Input should be 'none'"),
        (("--engine", "trtllm", "--tp", "0"), "--tp must be at least 1"),
        (("--engine", "trtllm", "--lora-max-rank", "0"), "--lora-max-rank must be at least 1"),
        (("--engine", "trtllm", "--workers", "0"), "--workers must be at least 1"),
        (
            ("--engine", "trtllm", "--speculative", "lookahead:0,3,4"),
            "--speculative needs sizes of at least 1, 1 and 0",
        ),
        (("--engine", "trtllm", "--speculative", "medusa"), "--speculative medusa is not like lookahead:4,3,4"),
        (("--engine", "trtllm", "--speculative", "lookahead:4,x,4"), "--speculative"),
    ],
)
def test_options_of_the_other_engine_and_wrong_ones_are_refused_by_name(
    options: tuple[str, ...], reason: str, model: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = outcome(capsys, "build", str(model), *options)
    assert (code, err.count("\n")) == (2, 1)
    assert reason in err


@pytest.mark.parametrize("source", ["smollm2-135m-instruct", "tiny.gguf"])
def test_only_checkpoints_become_engines(
    source: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    named = str(tmp_path / source) if source.endswith(".gguf") else source
    code, _, err = outcome(capsys, "build", named, "--engine", "trtllm", "--dry-run")
    assert code == 2
    assert "is no Hugging Face checkpoint" in err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_is_stopped_leaves_no_half_folder(
    sign: int, model: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "llm_server", "build", str(model), "--engine", "trtllm"]
    environment = {**os.environ, "FAKE_TRTLLM": "hang:build", "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert any("build hangs" in line for line in child.stderr)  # with an engine half written
    child.send_signal(sign)
    child.wait(timeout=30)
    child.stderr.close()
    folder = paths.engines(home) / "tiny-llama-trtllm"
    assert not folder.exists()
    assert build(capsys, model)[0] == 0
    EngineFolder.load(folder, verify=True)
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [folder.name]
