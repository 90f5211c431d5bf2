"""Every family has a recipe that its script takes, or is told to do without an engine."""

import subprocess
import sys
from pathlib import Path

import pytest

import stylers
from engines.build_options import BuildMachine, EngineOptions
from engines.building import BuildError
from engines.trtllm.building.builder import describe_build
from engines.trtllm.building.plan import EnginePlan, Folders
from engines.trtllm.building.recipes import RECIPES
from tests.engines.trtllm.building.checkpoints import write_weights
from tests.engines.trtllm.building.families import FAMILIES, Family
from tests.engines.trtllm.building.recipe_tables import PAGE, page
from tests.fakes.trtllm_scripts import SCRIPTS, write_examples
from tests.trtllm_fixtures import FAKES

SERVABLE = {family.recipe: family for family in FAMILIES.values() if family.recipe is not None}
CASES = [
    pytest.param(family, quantisation, id=f"{name}-{quantisation}")
    for name, family in SERVABLE.items()
    for quantisation in ("none", *next(recipe for recipe in RECIPES if recipe.family == name).quantisations)
]


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_examples(tmp_path_factory.mktemp("examples"))


def test_every_styler_has_a_family() -> None:
    assert set(FAMILIES) == set(stylers.names())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dry_run_shows_the_plan_or_names_the_other_driver(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = write_weights(tmp_path / "model", family.config)
    if family.recipe is None:
        with pytest.raises(BuildError, match=rf"llm-server serve {model} --engine trtllm$") as refused:
            describe_build(model, EngineOptions(), BuildMachine(), tmp_path / "engine")
        assert "\n" not in str(refused.value)
        return
    page = describe_build(model, EngineOptions(), BuildMachine(), tmp_path / "engine")
    script = next(recipe.script for recipe in RECIPES if recipe.family == family.recipe)
    assert f"/app/tensorrt_llm/examples/{script}" in page
    assert "trtllm-build" in page
    assert "KV cache" in page


@pytest.mark.parametrize(("family", "quantisation"), CASES)
def test_the_scripts_take_the_arguments_of_every_recipe(
    family: Family, quantisation: str, examples: Path, tmp_path: Path
) -> None:
    model = write_weights(tmp_path / "model", family.config)
    options = EngineOptions(quantization=quantisation, tensor_parallel_size=2, gather_logits=True)  # type: ignore[arg-type]
    folders = Folders(examples, tmp_path / "converted", tmp_path / "engine")
    build = str(FAKES / "bin" / "trtllm-build")
    for command in EnginePlan.make(model, options).commands(folders, python=sys.executable, build=build, workers=2):
        program = [sys.executable, command.program] if command.program == build else [command.program]
        tool = subprocess.run([*program, *command.arguments], capture_output=True, text=True, check=False)
        assert tool.returncode == 0, tool.stderr
    assert {file.name for file in (tmp_path / "engine").iterdir()} == {"config.json", "rank0.engine", "rank1.engine"}


def test_recipes_name_scripts_that_the_vendor_has() -> None:
    assert {recipe.script for recipe in RECIPES} <= {script.path for script in SCRIPTS.values()}
    assert len({recipe.family for recipe in RECIPES}) == len(RECIPES)


def test_the_documentation_shows_the_recipes_and_the_vendors_flags() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
