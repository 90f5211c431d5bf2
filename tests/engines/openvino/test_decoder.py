"""A language model and its embeddings, two graphs, are served like the one graph they were cut from."""

from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from engines.building import BuildError
from engines.folder import EngineFolder, EngineFolderError
from engines.openvino.builder import build_engine
from tests.engine_fixtures import build_request
from tests.engines.openvino.paged_model import paged_logits
from tests.engines.openvino.stateful_model import StatefulModel
from tests.vision_folders import PROCESSOR, write_vision_folder

TOKEN_IDS = [1, 40, 77, 105, 3, 200, 258, 260, 12, 90]
NUM_AXES = [0, 3]


def adopt(folder: Path, precision: str = "f16") -> EngineFolder:
    target = folder.parent / f"engine-{precision}"
    target.mkdir()
    return build_engine(build_request(folder, precision), target, "tests")


@pytest.mark.parametrize("num_axes", NUM_AXES)
def test_the_parts_compute_what_the_whole_does(num_axes: int, tiny_engine: Path, tmp_path: Path) -> None:
    engine = adopt(write_vision_folder(tmp_path / "seeing", tiny_engine, num_position_axes=num_axes))
    expected = StatefulModel(tiny_engine).logits(TOKEN_IDS)
    np.testing.assert_allclose(StatefulModel(engine.path).logits(TOKEN_IDS), expected, atol=1e-5, rtol=0)
    for cuts in ((), (4, 7), (8, 9)):
        np.testing.assert_allclose(paged_logits(engine, TOKEN_IDS, *cuts), expected, atol=2e-3, rtol=0)


def test_everything_for_images_is_kept_as_it_is(tiny_engine: Path, tmp_path: Path) -> None:
    folder = write_vision_folder(tmp_path / "seeing", tiny_engine)
    engine = adopt(folder)
    graphs = ("language", "text_embeddings", "vision_embeddings")
    assert {name for name in engine.files if name.startswith("openvino_")} == {
        f"openvino_{graph}_model.{suffix}" for graph in graphs for suffix in ("xml", "bin")
    }
    assert (engine.path / "preprocessor_config.json").read_text() == PROCESSOR
    kept = [name for name in engine.files if "embeddings" in name or name == "config.json"]
    assert len(kept) == 5
    assert all((engine.path / name).read_bytes() == (folder / name).read_bytes() for name in kept)
    assert EngineFolder.load(engine.path, verify=True).model_path.name == "openvino_language_model.xml"


@pytest.mark.parametrize("name", ["openvino_language_model.bin", "openvino_text_embeddings_model.xml"])
def test_a_missing_part_is_named(name: str, tiny_engine: Path, tmp_path: Path) -> None:
    folder = write_vision_folder(tmp_path / "seeing", tiny_engine)
    engine = adopt(folder)
    (folder / name).unlink()
    (tmp_path / "again").mkdir()
    with pytest.raises(BuildError, match=f"there is no file .*{name}"):
        adopt(folder.rename(tmp_path / "again" / "seeing"))
    (engine.path / name).unlink()
    with pytest.raises(EngineFolderError, match=f"{name} is missing"):
        EngineFolder.load(engine.path)


def test_a_language_model_with_more_inputs_is_refused(tiny_engine: Path, tmp_path: Path) -> None:
    folder = write_vision_folder(tmp_path / "seeing", tiny_engine)
    ir = folder / "openvino_language_model.xml"
    graph = ov.Core().read_model(ir)
    types = ops.parameter([-1, -1], np.int64, name="token_type_ids")
    types.output(0).set_names({"token_type_ids"})
    graph.add_parameters([types])
    ov.save_model(graph, tmp_path / ir.name)  # not over the weights that the graph is reading
    for suffix in (".xml", ".bin"):
        (tmp_path / ir.name).with_suffix(suffix).replace(ir.with_suffix(suffix))
    with pytest.raises(BuildError, match=r"is not a text decoder: it turns .*token_type_ids"):
        adopt(folder)


def test_both_parts_are_lowered_and_the_loss_is_measured(tiny_engine: Path, tmp_path: Path) -> None:
    folder = write_vision_folder(tmp_path / "seeing", tiny_engine, num_position_axes=3)
    engine = adopt(folder, "int8")
    loss = engine.description.precision_loss
    assert loss is not None
    assert 0 < loss.mean_abs_dlogprob <= 0.05
    for name, is_smaller in (("language", True), ("text_embeddings", True), ("vision_embeddings", False)):
        file = f"openvino_{name}_model.bin"
        assert (engine.files[file].size_bytes < (folder / file).stat().st_size) == is_smaller, name
