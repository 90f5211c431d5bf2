"""A folder as optimum-intel leaves a model that reads images: a text model's graph, cut in two behind its embedding.

Put together again it must compute what the text model does.
"""

from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from tests.hf_folders import write_metadata

VISION_CONFIG: dict[str, object] = {"vision_config": {"depth": 1}, "image_token_id": 5}
PROCESSOR = '{"patch_size": 14}'


def write_vision_folder(folder: Path, engine: Path, *, num_position_axes: int = 0) -> Path:
    """Cut the graph of an engine folder. With axes, positions are [axes, ...] and the last axis counts."""
    write_metadata(folder, engine, **VISION_CONFIG)
    (folder / "preprocessor_config.json").write_text(PROCESSOR)
    language = ov.Core().read_model(engine / "openvino_model.xml")
    _save(_cut_off_embeddings(language), folder / "openvino_text_embeddings_model.xml")
    if num_position_axes:
        _add_position_axes(language, num_position_axes)
    _save(language, folder / "openvino_language_model.xml")
    pixels = ops.parameter([-1, 3, 8, 8], ov.Type.f32, name="pixel_values")
    _save(ov.Model([ops.relu(pixels)], [pixels], "vision"), folder / "openvino_vision_embeddings_model.xml")
    return folder


def _save(graph: ov.Model, ir: Path) -> None:
    ov.save_model(graph, ir, compress_to_fp16=False)


def _cut_off_embeddings(language: ov.Model) -> ov.Model:
    """Let the graph take `inputs_embeds`; return the part that made them of token ids."""
    input_ids = language.input("input_ids").get_node()
    users = {user.get_node().get_type_name(): user for user in input_ids.output(0).get_target_inputs()}
    lookup = next(iter(users["Convert"].get_node().output(0).get_target_inputs())).get_node()
    embeds = ops.parameter(lookup.output(0).get_partial_shape(), np.float32, name="inputs_embeds")
    embeds.output(0).set_names({"inputs_embeds"})
    for user in (users["ShapeOf"], *lookup.output(0).get_target_inputs()):
        user.replace_source_output(embeds.output(0))
    language.remove_parameter(input_ids)
    language.add_parameters([embeds])
    return ov.Model([lookup], [input_ids], "embeddings")


def _add_position_axes(language: ov.Model, num_axes: int) -> None:
    """Let the graph take positions [num_axes, sequences, tokens] and use their mean, as if each turned some heads."""
    flat = language.input("position_ids").get_node()
    positions = ops.parameter([num_axes, -1, -1], np.int64, name="position_ids")
    positions.output(0).set_names({"position_ids"})
    mean = ops.reduce_mean(positions, ops.constant(np.int64(0)))
    for user in flat.output(0).get_target_inputs():
        user.replace_source_output(mean.output(0))
    language.remove_parameter(flat)
    language.add_parameters([positions])
