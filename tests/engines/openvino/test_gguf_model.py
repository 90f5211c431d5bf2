"""GGUF files are converted exactly or refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engines.openvino.gguf_model import GgufError, GgufModel, write_f16
from tests.tiny_gguf import TinyModel, write_tiny_gguf


@pytest.mark.parametrize("quantisation", ["f32", "bf16", "q4_0", "q5_0", "q8_0", "mxfp4"])
def test_f16_copy_holds_the_dequantised_weights(quantisation: str, tmp_path: Path) -> None:
    source = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(quantisation=quantisation))
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


def test_weights_outside_the_graph_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel("qwen2"))
    renamed = path.read_bytes().replace(b"qwen2", b"llama")
    path.write_bytes(renamed)
    with pytest.raises(GgufError, match=r"the llama graph does not use: \['blk\.0\.attn_q\.bias'"):
        GgufModel.open(path)


def test_unknown_rope_scaling_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(rope_scaling="yarn"))
    with pytest.raises(GgufError, match="rope scaling 'yarn'; known scalings: none, linear"):
        GgufModel.open(path)


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
