"""Why TensorRT-LLM cannot be used here or for this model, in one line each."""

from engines.errors import EngineError


class TensorRTLLMError(EngineError):
    """The package, its version, the GPUs, the model or a setting does not fit; the message says what would."""

    code = "tensorrt_llm_unusable"
