"""Models that TensorRT-LLM's PyTorch backend serves from their Hugging Face checkpoints, through `tensorrt_llm.LLM`."""
