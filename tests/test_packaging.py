"""The install: ranges that the optional engines can live with, constraints that lie inside them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# What TensorRT-LLM 1.2 pins, with the last version of each that it allows.
TRTLLM_PINS = {"transformers": "4.57.1", "numpy": "1.26.4", "fastapi": "0.121.3", "llguidance": "0.7.29"}
# What optimum-intel 2.2 and its vision-language exports work with; conversion has an environment of its own.
CONVERT_PINS = {"transformers": "4.57.3"}


def ranges(*groups: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(found.name): found for group in groups for found in map(Requirement, group)}


BASE = ranges(PROJECT["dependencies"])
RANGES = ranges(PROJECT["dependencies"], EXTRAS["test"], EXTRAS["bench"])


@pytest.mark.parametrize("pins", [TRTLLM_PINS, CONVERT_PINS], ids=["trtllm", "convert"])
def test_our_ranges_contain_what_the_optional_engines_pin(pins: dict[str, str]) -> None:
    for name, version in pins.items():
        assert RANGES[canonicalize_name(name)].specifier.contains(version), f"{name} {version}"


def test_the_openvino_packages_are_pinned_to_one_minor() -> None:
    pins = {str(BASE[name].specifier) for name in ("openvino", "openvino-genai", "openvino-tokenizers")}
    assert len(pins) == 1
    assert re.fullmatch(r"==\d+\.\d+\.\*", pins.pop())


def test_constraints_lie_inside_the_ranges() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    for name, requirement in RANGES.items():
        version = pins.get(canonicalize_name(name), "")
        assert requirement.specifier.contains(version), f"{name} is pinned to {version!r}"


def test_the_default_install_has_no_pytorch() -> None:
    assert not {"torch", "transformers", "nncf", "tensorrt-llm", "optimum-intel"} & set(BASE)


def test_every_promised_extra_is_there() -> None:
    assert {"vision", "quantize", "trtllm", "gradio", "bench", "test"} <= set(EXTRAS)


def test_nobody_is_told_to_install_from_pypi_where_the_name_is_another_projects() -> None:
    folders = ("llm_server", "engines", "stylers", "benchmarks", "docs", "docker")
    told = [*ROOT.glob("*.md"), *(file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file())]
    advice = re.compile(rf"pip install ['\"]?{PROJECT['name']}\b".encode())
    assert [file for file in told if advice.search(file.read_bytes())] == []
