"""Copies a GGUF file with its weights dequantised: the only form that openvino-genai converts exactly."""

from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from engines.openvino.gguf_model import GgufError, GgufModel, dequantise
from engines.progress import Phase, Progress, silent


def write_f16(model: GgufModel, target: Path, progress: Progress = silent) -> None:
    """Write the model with dequantised weights: matrices in F16, vectors in F32. The vocabulary is left out.

    openvino-genai builds its own tokenizer beside the graph and fails without a vocabulary or a special token in it;
    ours is written elsewhere, so it gets the smallest one that passes.
    """
    with closing(gguf.GGUFWriter(target, model.architecture)) as writer:
        _add_parameters(writer, model)
        _add_stand_in_vocabulary(writer)
        _add_weights(writer, model.weights(), progress)


def _add_parameters(writer: gguf.GGUFWriter, model: GgufModel) -> None:
    for key, field in model.metadata.items():
        if key.startswith(f"{model.architecture}."):
            element = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], element)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _add_stand_in_vocabulary(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<end>", "a", "b", "ab"])
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * 3])
    writer.add_token_merges(["a b"])
    for add_id in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add_id(0)


def _add_weights(writer: gguf.GGUFWriter, weights: list[gguf.ReaderTensor], progress: Progress) -> None:
    """Write everything that has been added, then one tensor after the other: only one is in memory."""
    for tensor in weights:
        shape, dtype = tuple(int(size) for size in reversed(tensor.shape)), _stored_dtype(tensor)
        writer.add_tensor_info(tensor.name, shape, dtype, tensor.n_elements * dtype.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for done, tensor in enumerate(weights):
        progress(Phase.DEQUANTISE, done, len(weights))
        writer.write_tensor_data(_stored_weights(tensor))
    progress(Phase.DEQUANTISE, len(weights), len(weights))


def _stored_dtype(tensor: gguf.ReaderTensor) -> np.dtype[np.float16] | np.dtype[np.float32]:
    return np.dtype(np.float32) if len(tensor.shape) == 1 else np.dtype(np.float16)


def _stored_weights(tensor: gguf.ReaderTensor) -> NDArray[np.floating[Any]]:
    with np.errstate(over="ignore"):  # the check below names the tensor
        weights: NDArray[np.floating[Any]] = dequantise(tensor).astype(_stored_dtype(tensor))
    if not np.isfinite(weights).all():
        raise GgufError(f"tensor {tensor.name} holds weights that {weights.dtype} cannot hold")
    return weights
