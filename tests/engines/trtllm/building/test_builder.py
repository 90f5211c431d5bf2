"""A checkpoint becomes an engine folder that needs nothing else; a build that ends early leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.build_options import BuildMachine, EngineOptions, LoraOptions
from engines.building import BUILDERS, BuildError, BuildRequest
from engines.folder import EngineFolder
from engines.model_files import ModelFiles
from engines.progress import Phase, silent
from engines.trtllm.location import ModelKind, ModelLocation
from engines.trtllm.prebuilt.engine import PrebuiltEngine
from tests.engines.trtllm.building.checkpoints import write_safetensors
from tests.fakes.trtllm_scripts import write_examples
from tests.trtllm_fixtures import FAKES, write_checkpoint

Build = Callable[..., EngineFolder]


@pytest.fixture
def model(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "Tiny-Llama", tiny_checkpoint / "tokenizer.json", intermediate_size=128)
    write_safetensors(folder / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": (64, 128)})
    return folder


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def build(model: Path, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setenv("PATH", f"{FAKES / 'bin'}:{os.environ['PATH']}")
    machine = BuildMachine(examples=write_examples(tmp_path / "examples"), workers=2)

    def run(progress: Callable[[Phase, int, int | None], None] = silent, **options: object) -> EngineFolder:
        target = tmp_path / "target"
        target.mkdir()
        request = BuildRequest(
            model=ModelFiles.find(model),
            name="Tiny-Llama",
            source=f"folder:{model}",
            source_sha256="0",
            engine_options=EngineOptions(**options),  # type: ignore[arg-type]
            machine=machine,
            show=lines.append,
        )
        return BUILDERS["trtllm"].build(request, target, progress)

    return run


def test_an_engine_folder_has_all_that_a_server_needs(build: Build, lines: list[str]) -> None:
    events: list[tuple[Phase, int, int | None]] = []
    built = build(lambda *event: events.append(event), tensor_parallel_size=2, max_batch_size=8)
    folder = EngineFolder.load(built.path, verify=True)
    assert set(folder.files) == {
        *("config.json", "rank0.engine", "rank1.engine", "trtllm.json"),
        *("tokenizer.json", "chat_template.jinja", "generation_config.json"),
    }
    description = folder.description
    assert (description.engine, description.architecture, description.model_name) == (
        "trtllm",
        "LlamaForCausalLM",
        "Tiny-Llama",
    )
    assert (description.precision, description.max_sequence_length) == ("bfloat16", 512)
    assert description.build_options["max_batch_size"] == 8
    location = ModelLocation.read(folder.path)
    assert (location.kind, location.path.resolve()) == (ModelKind.ENGINE, folder.path)
    engine = PrebuiltEngine.read(folder.path)
    assert (engine.max_batch_size, engine.max_input_length, engine.world_size) == (8, 511, 2)
    assert list(dict.fromkeys(phase for phase, _, _ in events)) == [Phase.CONVERT, Phase.BUILD, Phase.WRITE]
    text = "\n".join(lines)
    assert "memory per GPU, on paper" in text
    assert "TensorRT LLM version" in text
    assert "Serializing engine" in text


def test_adapters_that_come_with_an_engine_are_part_of_its_folder(build: Build) -> None:
    folder = build(lora=LoraOptions(folders=("/adapters/one",)))
    assert "lora/0/adapter_config.json" in EngineFolder.load(folder.path, verify=True).files
    assert PrebuiltEngine.read(folder.path).lora_plugin


def test_a_quantised_engine_says_so(build: Build) -> None:
    assert build(quantization="fp8").description.precision == "FP8"


@pytest.mark.parametrize(("tool", "name"), [("convert", r"llama/convert_checkpoint\.py"), ("build", "trtllm-build")])
def test_a_tool_that_fails_is_told_with_its_last_lines(
    tool: str, name: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRTLLM", f"fail:{tool}")
    with pytest.raises(BuildError, match=rf"{name} failed \(exit status 3\): .*out of memory: 12 GiB wanted"):
        build()


def test_tools_that_are_missing_are_named(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildError, match="trtllm-build is not on PATH"):
        build()
    (tmp_path / "target").rmdir()
    (tmp_path / "examples" / "models" / "core" / "llama" / "convert_checkpoint.py").unlink()
    with pytest.raises(BuildError, match=r"there is no .*convert_checkpoint\.py; .* --examples or TRTLLM_EXAMPLES"):
        build()


def test_a_model_without_a_tokenizer_is_refused_before_the_work(build: Build, model: Path, lines: list[str]) -> None:
    (model / "tokenizer.json").unlink()
    with pytest.raises(BuildError, match="save_pretrained"):
        build()
    assert not any("version" in line for line in lines)


CHILD = """
import sys
from pathlib import Path
from engines.trtllm.building.plan import Command
from engines.trtllm.building.tools import run_tool
run_tool(Command(sys.executable, ("-c", sys.argv[1])), lambda line: print(line, flush=True))
"""
TOOL = """
import os, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print(os.getpid(), helper.pid, flush=True)
time.sleep(3600)
"""


def is_alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("sign", "helpers_die"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_a_tool_does_not_outlive_an_interrupted_build(sign: int, helpers_die: bool) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, TOOL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    tool, helper = map(int, child.stdout.readline().split())
    child.send_signal(sign)
    child.wait(timeout=30)
    child.stdout.close()
    deadline = time.monotonic() + 30
    while (is_alive(tool) or (helpers_die and is_alive(helper))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(tool)
    if helpers_die:
        assert not is_alive(helper)
    else:  # trtllm-build's own helpers end when they find it gone; this one would not
        os.kill(helper, signal.SIGKILL)
