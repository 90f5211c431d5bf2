"""A fake TensorRT-LLM 1.2 (PyTorch backend) over a tiny deterministic model; README.md says how strict it is.

No code of the real package is in it. Tests reach behind the scenes through `tensorrt_llm.stage`.
"""

from .llmapi import LLM, SamplingParams
from .version import __version__

__all__ = ["LLM", "SamplingParams", "__version__"]
