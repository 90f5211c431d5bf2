"""The executor over NVIDIA TensorRT-LLM 1.2, its builder, and the rules of its processes.

`tensorrt_llm` is imported in one place, `runtime`, when a model is loaded: nothing here needs a GPU to be imported.
Attributes of TensorRT-LLM that are not public are used in `checkpoints.driver` only.
"""
