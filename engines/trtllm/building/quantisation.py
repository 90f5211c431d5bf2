"""The ways TensorRT-LLM's scripts quantise weights, and what each makes of them. One table for all families.

Source: examples/quantization/quantize.py and README.md, and the weight-only flags of the convert_checkpoint.py scripts,
release 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.build_options import KVCacheDtype, QuantisationName

_CALIBRATION = ("--calib_size", "512")


@dataclass(frozen=True, slots=True)
class Quantisation:
    """One way: `bits` per weight with its scales, and the KV cache that comes with it.

    `convert` are the arguments of a family's convert_checkpoint.py, None where only quantize.py can do it; `qformat`
    and `calibration` are those of quantize.py.
    """

    bits: float | None
    """None leaves the weights as they are."""
    qformat: str
    convert: tuple[str, ...] | None = None
    calibration: tuple[str, ...] = _CALIBRATION
    build: tuple[str, ...] = ("--gemm_plugin", "auto")
    """Of trtllm-build; NVFP4 has a plugin of its own, which is on unless another is named."""
    kv_cache_dtype: KVCacheDtype = "auto"
    gpus: str = "Ampere and newer"


QUANTISATIONS: Mapping[QuantisationName, Quantisation] = {
    "none": Quantisation(None, "full_prec", convert=()),
    "int8_wo": Quantisation(8, "int8_wo", convert=("--use_weight_only", "--weight_only_precision", "int8")),
    "int4_wo": Quantisation(4, "int4_wo", convert=("--use_weight_only", "--weight_only_precision", "int4")),
    "int4_awq": Quantisation(4 + 16 / 128, "int4_awq", calibration=("--awq_block_size", "128", "--calib_size", "32")),
    "w4a8_awq": Quantisation(
        4 + 16 / 128,
        "w4a8_awq",
        calibration=("--awq_block_size", "128", "--calib_size", "32"),
        gpus="Ada and newer",
    ),
    "int8_sq": Quantisation(8, "int8_sq"),
    "fp8": Quantisation(8, "fp8", kv_cache_dtype="fp8", gpus="Ada and newer"),
    "nvfp4": Quantisation(4 + 8 / 16, "nvfp4", build=(), kv_cache_dtype="fp8", gpus="Blackwell"),
}
