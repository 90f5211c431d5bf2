"""An IR made elsewhere becomes an engine folder that computes the same, or is refused with what is wrong."""

import json
import re
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest

from engines.building import BuildError
from engines.folder import EngineFolder
from engines.openvino.builder import build_engine
from tests.engine_fixtures import build_request
from tests.engines.openvino.stateful_model import StatefulModel
from tests.hf_folders import write_ir_folder
from tests.tiny_vocabulary import CHAT_TEMPLATE


@pytest.fixture
def folder(tiny_engine: Path, tmp_path: Path) -> Path:
    return write_ir_folder(tmp_path / "Tiny-IR", tiny_engine)


def adopt(folder: Path, precision: str = "f16") -> EngineFolder:
    target = folder.parent / "engine"
    target.mkdir()
    return build_engine(build_request(folder, precision), target, "tests")


def test_the_graph_computes_the_same_and_the_facts_are_read(folder: Path) -> None:
    engine = adopt(folder)
    expected, found = (StatefulModel(path).logits([1, 40, 77, 105, 3, 200]) for path in (folder, engine.path))
    np.testing.assert_array_equal(found, expected)
    facts = engine.description
    assert (facts.model_name, facts.architecture, facts.precision) == ("Tiny-IR", "llama", "f16")
    assert (facts.end_token_ids, facts.eos_text) == ((2, 0), "<|im_end|>")
    assert (facts.bos_token_id, facts.bos_text, facts.prompt_starts_with_bos) == (1, "<|im_start|>", False)
    assert (facts.max_sequence_length, facts.precision_loss) == (512, None)
    assert facts.model_config == {
        "_name_or_path": "Tiny-IR",
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }
    assert engine.chat_template == CHAT_TEMPLATE
    assert engine.generation_config() == {"temperature": 0.7, "top_k": 20}
    EngineFolder.load(engine.path, verify=True)


def test_the_kv_cache_is_not_left_to_the_runtime(folder: Path) -> None:
    file = folder / "openvino_model.xml"
    file.write_text(re.sub(r"<KV_CACHE_PRECISION value=.*?/>", "", file.read_text(encoding="utf-8")), encoding="utf-8")
    assert '<KV_CACHE_PRECISION value="f16" />' in adopt(folder).model_path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["openvino_model.bin", "tokenizer.json", "config.json"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(BuildError, match=name):
        adopt(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [("openvino_model.xml", "<net"), ("tokenizer.json", "{"), ("config.json", "[" * 100_000), ("config.json", "[]")],
)
def test_a_damaged_file_is_named(name: str, content: str, folder: Path) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(BuildError, match=name):
        adopt(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"audio_config": {}}, "listens: its config.json has an audio_config"),
        ({"text_config": {"max_position_embeddings": 512, "sliding_window": 128}}, "attends to 128 of 512 tokens"),
        ({"sliding_window": 128}, "attends to 128 of 512 tokens"),
        ({"max_position_embeddings": None}, "lacks a positive max_position_embeddings"),
    ],
)
def test_what_the_executor_does_not_follow_is_refused(
    config: dict[str, object], message: str, tiny_engine: Path, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=message):
        adopt(write_ir_folder(tmp_path / "other", tiny_engine, **config))


@pytest.mark.parametrize(
    "config",
    [
        {"sliding_window": 128, "use_sliding_window": False},
        {"sliding_window": 128, "layer_types": ["full_attention"] * 2},
        {"sliding_window": 512},
        {"sliding_window": None},
    ],
)
def test_a_window_that_changes_nothing_is_accepted(
    config: dict[str, object], tiny_engine: Path, tmp_path: Path
) -> None:
    adopt(write_ir_folder(tmp_path / "other", tiny_engine, **config))


def test_a_graph_that_is_no_text_decoder_is_refused(folder: Path) -> None:
    pixels = ops.parameter([1, 3, 8, 8], ov.Type.f32, name="pixels")
    ov.save_model(ov.Model([ops.relu(pixels)], [pixels], "other"), folder / "openvino_model.xml")
    with pytest.raises(BuildError, match=r"is not a text decoder: it turns .*pixels into"):
        adopt(folder)


def test_more_tokens_than_logits_are_refused(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 9999, "content": "<extra>"})
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(BuildError, match="more tokens than the"):
        adopt(folder)
