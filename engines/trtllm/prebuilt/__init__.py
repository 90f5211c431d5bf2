"""Prebuilt TensorRT engines, run by the C++ executor."""
