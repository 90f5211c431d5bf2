"""Imports go one way: llm_server to stylers, vit and engines, and none of these to another of ours."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"llm_server", "stylers", "vit", "engines", "benchmarks", "tests", "tools"}
MAY_IMPORT = {
    "llm_server": {"llm_server", "stylers", "vit", "engines"},
    "stylers": {"stylers"},
    "vit": {"vit", "engines"},
    "engines": {"engines"},
}
PLAIN_DATA = {"engines", "engines.contract", "engines.errors"}  # of the engines, what siblings may use
HEAVY = {"torch", "transformers", "tensorrt_llm", "openvino", "openvino_genai", "nncf", "cv2"}
BACKENDS = ("engines/openvino/", "engines/trtllm/")


def imports(file: Path, *, module_level: bool = False) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body if module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield str(node.module)


def files(*packages: str) -> list[Path]:
    return [file for package in packages for file in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("file", files(*MAY_IMPORT), ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_follow_the_arrows(file: Path) -> None:
    package = file.relative_to(ROOT).parts[0]
    for name in imports(file):
        target = name.partition(".")[0]
        if target in OURS:
            assert target in MAY_IMPORT[package], f"{file} imports {name}"
            if package == "vit" and target == "engines":
                assert name in PLAIN_DATA, f"{file} imports {name}"


def test_only_a_backend_imports_its_runtime() -> None:
    for file in files(*MAY_IMPORT):
        path = file.relative_to(ROOT).as_posix()
        heavy = {name for name in imports(file) if name.partition(".")[0] in HEAVY}
        assert not heavy or path.startswith(BACKENDS), f"{path} imports {heavy}"


def test_siblings_behind_the_contract_do_not_know_each_other() -> None:
    for backend in BACKENDS:
        others = [other.rstrip("/").replace("/", ".") for other in BACKENDS if other != backend]
        for file in files(backend):
            assert not any(name.startswith(other) for name in imports(file) for other in others)


def test_backends_are_found_by_name_and_never_imported_from_above() -> None:
    for file in [*files("llm_server"), *(ROOT / "engines").glob("*.py")]:
        for name in imports(file, module_level=True):
            assert not name.startswith(("engines.openvino", "engines.trtllm")), f"{file} imports {name}"
