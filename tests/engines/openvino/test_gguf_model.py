"""GGUF files are converted exactly or refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engines.openvino.gguf_f16 import write_f16
from engines.openvino.gguf_model import GgufError, GgufModel
from tests.tiny_gguf import TinyModel, write_tiny_gguf

FLOATS = ["f32", "f16", "bf16"]
BLOCKS_OF_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"]
K_BLOCKS = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "tq1_0", "tq2_0"]
I_BLOCKS = ["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"]


@pytest.mark.parametrize("quantisation", [*FLOATS, *BLOCKS_OF_32, *K_BLOCKS, *I_BLOCKS])
def test_f16_copy_holds_the_dequantised_weights(quantisation: str, tmp_path: Path) -> None:
    shape = TinyModel(quantisation=quantisation, num_layers=1, hidden_size=256, head_size=64, ffn_size=256)
    source = write_tiny_gguf(tmp_path / "tiny.gguf", shape)
    steps: list[tuple[int, int | None]] = []
    write_f16(GgufModel.open(source), tmp_path / "f16.gguf", lambda phase, done, total: steps.append((done, total)))
    copies = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "f16.gguf").tensors}
    for tensor in gguf.GGUFReader(source).tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        expected = weights if weights.ndim == 1 else weights.astype(np.float16)
        np.testing.assert_array_equal(copies[tensor.name].data, expected, strict=True)
    assert steps == [(done, len(copies)) for done in range(len(copies) + 1)]


def test_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel("gemma3"))
    with pytest.raises(GgufError, match="'gemma3'; known architectures: llama, qwen2, qwen3"):
        GgufModel.open(path)


@pytest.mark.parametrize(
    ("renamed", "message"),
    [
        ((b"qwen2", b"llama"), r"tensors the llama graph does not use: blk\.0\.attn_k\.bias, blk\.0\.attn_q\.bias"),
        ((b"qwen2", b"qwen3"), r"lacks the tensors blk\.0\.attn_k_norm\.weight, blk\.0\.attn_q_norm\.weight"),
        ((b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"), r"lacks the tensors blk\.1\.ffn_up\.weight"),
        ((b"qwen2.block_count", b"qwen2.block_XXXXX"), r"lacks a positive qwen2\.block_count"),
    ],
)
def test_other_tensors_than_the_graph_uses_are_refused(
    renamed: tuple[bytes, bytes], message: str, tmp_path: Path
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel("qwen2"))
    path.write_bytes(path.read_bytes().replace(*renamed))
    with pytest.raises(GgufError, match=message):
        GgufModel.open(path)


def test_unknown_rope_scaling_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(rope_scaling="yarn"))
    with pytest.raises(GgufError, match="rope scaling 'yarn'; known scalings: none, linear"):
        GgufModel.open(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama.expert_count": 8}, r"sets llama\.expert_count = 8"),
        ({"llama.logit_scale": 0.5}, r"sets llama\.logit_scale = 0\.5"),
        ({"llama.attention.sliding_window": 256}, "attends to 256 of 512 tokens"),
        ({"llama.rope.dimension_count": 8}, "rotates 8 of 16 values"),
        ({"split.count": 2}, "one of 2 parts, which are found by their names"),
        ({"llama.attention.scale": 1}, r"sets llama\.attention\.scale = 1"),
    ],
)
def test_other_arithmetic_is_refused(extra: dict[str, float], message: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(extra=extra))
    with pytest.raises(GgufError, match=message):
        GgufModel.open(path)


def test_heads_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(num_heads=4, num_kv_heads=3))
    with pytest.raises(GgufError, match="4 query heads for 3 key heads"):
        GgufModel.open(path)


def test_arithmetic_that_changes_nothing_is_accepted(tmp_path: Path) -> None:
    extra = {"llama.expert_count": 0, "llama.attention.sliding_window": 512, "llama.rope.dimension_count": 16}
    GgufModel.open(write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(extra=extra)))


def test_metadata_of_another_type_is_refused(tmp_path: Path) -> None:
    model = GgufModel.open(write_tiny_gguf(tmp_path / "tiny.gguf"))
    with pytest.raises(GgufError, match=r"general\.name = 'Tiny llama' instead of a value of type int"):
        model.integer("general.name")
    with pytest.raises(GgufError, match=r"general\.name = 'Tiny llama' instead of a list"):
        model.strings("general.name")


def test_weights_beyond_float16_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(weight_scale=1e6))
    with pytest.raises(GgufError, match=r"tensor token_embd\.weight holds weights that float16 cannot hold"):
        write_f16(GgufModel.open(path), tmp_path / "f16.gguf")


@pytest.mark.parametrize("keep", [0.0, 0.0001, 0.01, 0.3, 0.9, 0.999])
def test_a_cut_file_is_refused(keep: float, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(GgufError, match="not a whole GGUF file"):
        GgufModel.open(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "poem.gguf"
    path.write_text("no magic here, only words and words and words")
    with pytest.raises(GgufError, match="not a whole GGUF file: GGUF magic invalid"):
        GgufModel.open(path)


def test_parts_of_different_models_are_refused(tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "tiny.gguf", tensors_per_part=8)
    last = first.with_name("tiny-00003-of-00003.gguf")
    last.write_bytes(first.with_name("tiny-00002-of-00003.gguf").read_bytes())
    with pytest.raises(GgufError, match=r"have 24 tensors instead of 20|has a tensor twice"):
        GgufModel.open(first)
