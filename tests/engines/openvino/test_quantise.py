"""Lower precisions say what they lost."""

import sys
from pathlib import Path

import pytest

from engines.building import BuildError
from engines.folder import TOKENIZER_FILE, EngineFolder, PrecisionLoss
from engines.hf_metadata import read_tokenizer
from engines.openvino.builder import build_engine
from engines.openvino.precision_loss import measure_loss
from tests.engine_fixtures import build_request
from tests.hf_folders import write_ir_folder


def lower(model: Path, target: Path, precision: str) -> EngineFolder:
    target.mkdir()
    return build_engine(build_request(model, precision), target, "tests")


@pytest.mark.parametrize(("precision", "agreement", "distance"), [("int8", 0.95, 0.03), ("int4", 0.5, 0.4)])
def test_a_lower_precision_is_smaller_and_its_loss_is_kept(
    precision: str, agreement: float, distance: float, tiny_engine: Path, tmp_path: Path
) -> None:
    lowered = lower(tiny_engine.parent / "tiny.gguf", tmp_path / "engine", precision)
    description = EngineFolder.load(lowered.path, verify=True).description
    assert (description.precision, "nncf" in description.versions) == (precision, True)
    assert description.precision_loss is not None
    assert description.precision_loss.top1_agreement >= agreement
    assert 0 < description.precision_loss.mean_abs_dlogprob <= distance
    exact = EngineFolder.load(tiny_engine)
    assert lowered.files["openvino_model.bin"].size_bytes < 0.75 * exact.files["openvino_model.bin"].size_bytes
    assert {file.name for file in lowered.path.iterdir()} == {*lowered.files, "engine.json"}


def test_what_is_lowered_already_is_refused(tiny_engine: Path, tmp_path: Path) -> None:
    int8 = lower(tiny_engine.parent / "tiny.gguf", tmp_path / "int8", "int8")
    folder = write_ir_folder(tmp_path / "ir", int8.path)
    assert lower(folder, tmp_path / "adopted", "f16").description.precision == "int8"
    with pytest.raises(BuildError, match="the weights of ir are int8 already"):
        lower(folder, tmp_path / "int4", "int4")


def test_without_nncf_the_extra_is_named(tiny_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)  # as if it were not installed
    with pytest.raises(BuildError, match=r"int8 weights need NNCF: pip install -e '.\[quantize\]'"):
        lower(tiny_engine.parent / "tiny.gguf", tmp_path / "engine", "int8")
    assert list((tmp_path / "engine").iterdir()) == []


def test_a_model_loses_nothing_against_itself(tiny_engine: Path) -> None:
    ir, tokenizer = tiny_engine / "openvino_model.xml", read_tokenizer(tiny_engine / TOKENIZER_FILE)
    assert measure_loss(ir, ir, tokenizer) == PrecisionLoss(1.0, 0.0, 512)
