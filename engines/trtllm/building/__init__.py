"""From a Hugging Face checkpoint to a TensorRT engine, with the vendor's own tools."""
