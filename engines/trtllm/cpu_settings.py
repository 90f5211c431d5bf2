"""Settings of the CPU engine, which are refused here."""

from engines.config import EngineConfig
from engines.trtllm.errors import TensorRTLLMError


def refuse_cpu_settings(config: EngineConfig) -> None:
    """Raise TensorRTLLMError for settings that only the CPU engine has."""
    for name, default in (("precision", "auto"), ("kv_cache_precision", "auto"), ("num_threads", None)):
        if getattr(config, name) != default:
            raise TensorRTLLMError(f"{name} is a setting of the CPU engine; trtllm has dtype and kv_cache_dtype")
