"""A Hugging Face checkpoint to an engine folder that needs nothing else: convert or quantise, build, describe."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engines.build_options import BuildMachine, EngineOptions
from engines.building import BuildError, BuildRequest, refuse_full_disk
from engines.errors import EngineError
from engines.folder import EngineFolder, describe_folder
from engines.progress import Phase, Progress
from engines.trtllm.adopt import engine_facts, refuse_missing_tokenizer
from engines.trtllm.building.memory import GIB, count_memory, gpu_memory_bytes
from engines.trtllm.building.plan import EnginePlan, Folders
from engines.trtllm.building.tools import BUILD_TOOL, find_build_tool, refuse_missing, run_tool
from engines.trtllm.location import ModelKind, ModelLocation
from engines.trtllm.prebuilt.engine import PrebuiltEngine


def describe_build(model: Path, options: EngineOptions, machine: BuildMachine, engine: Path) -> str:
    """Say which commands make the engine, and what it takes of a GPU. Needs no GPU. Raises BuildError."""
    try:
        plan = EnginePlan.make(model, options)
        page = count_memory(plan, _gpu_bytes(machine))
    except EngineError as exc:
        raise BuildError(str(exc)) from exc
    page.refuse_too_large()
    folders = Folders(machine.examples, engine.with_name(f"{engine.name}.converted"), engine)
    commands = plan.commands(folders, python=sys.executable, build=BUILD_TOOL, workers=machine.workers)
    limits = [f"known limit: {limit}" for limit in plan.recipe.limits]
    gpus = f"recipe {plan.recipe.family}, quantization {options.quantization}, for GPUs of {plan.quantisation.gpus}"
    return "\n\n".join((*map(str, commands), str(page), "\n".join((gpus, *limits))))


def build_engine(request: BuildRequest, target: Path, builder: str, progress: Progress) -> EngineFolder:
    """Build the engine of a checkpoint inside the empty folder `target`. Raises BuildError."""
    try:
        plan = EnginePlan.make(request.model.path, request.engine_options)
        page = count_memory(plan, _gpu_bytes(request.machine))
        page.refuse_too_large()
        request.show(str(page))
        refuse_missing_tokenizer(plan.checkpoint.path)  # before hours of work
        _run(plan, target, request.machine, request.show, progress)
        facts = engine_facts(PrebuiltEngine.read(target), request.name, plan.checkpoint.path, target)
    except EngineError as exc:
        raise BuildError(str(exc)) from exc
    ModelLocation(ModelKind.ENGINE, target).write(target)
    progress(Phase.WRITE, 0, 1)
    description = request.describe(facts, engine="trtllm", builder=builder)
    options = request.engine_options.as_document()
    folder = describe_folder(target, replace(description, build_options=options))
    progress(Phase.WRITE, 1, 1)
    return folder


def _run(
    plan: EnginePlan, target: Path, machine: BuildMachine, show: Callable[[str], None], progress: Progress
) -> None:
    with tempfile.TemporaryDirectory(prefix=".converted-", dir=target) as scratch:
        folders = Folders(machine.examples, Path(scratch), target)
        build = find_build_tool() or BUILD_TOOL
        commands = plan.commands(folders, python=sys.executable, build=build, workers=machine.workers)
        refuse_missing(Path(commands[0].arguments[0]))
        sizes = sum(file.stat().st_size for file in plan.checkpoint.path.glob("*.safetensors"))
        refuse_full_disk(target, 2 * sizes)  # TensorRT-LLM's checkpoint and the engine, where nothing is quantised
        for phase, command in zip((Phase.CONVERT, Phase.BUILD), commands, strict=True):
            progress(phase, 0, 1)
            show(f"$ {command}")
            run_tool(command, show)
            progress(phase, 1, 1)


def _gpu_bytes(machine: BuildMachine) -> int | None:
    return gpu_memory_bytes() if machine.gpu_memory_gib is None else int(machine.gpu_memory_gib * GIB)
