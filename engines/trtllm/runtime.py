"""The installed TensorRT-LLM. The only place that imports it, and PyTorch."""

import re
from importlib import import_module
from types import ModuleType

from engines.trtllm.errors import TensorRTLLMError

REQUIRED = "tensorrt-llm>=1.2,<1.3"
_IS_1_2 = re.compile(r"1\.2(\.\d+)*(\.post\d+)?(\+.*)?")  # candidates of 1.2.0 come before it


def import_tensorrt_llm() -> ModuleType:
    """Import the package, which takes seconds and needs its GPU libraries. Raises TensorRTLLMError."""
    try:
        top = import_module("tensorrt_llm")
    except ImportError as exc:
        raise TensorRTLLMError(f"TensorRT-LLM cannot be imported ({exc}); install {REQUIRED} on a GPU machine") from exc
    version = str(top.__version__)
    if not _IS_1_2.fullmatch(version):
        raise TensorRTLLMError(f"TensorRT-LLM {version} is installed; this server needs {REQUIRED}")
    return top


def import_part(name: str) -> ModuleType:
    """Import a module of the package, or `torch`, which the package brings along."""
    return import_module(name)
