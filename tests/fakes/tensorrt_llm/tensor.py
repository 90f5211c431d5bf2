"""The tensors that travel through the package's interfaces."""

from torch import Tensor, tensor

__all__ = ["Tensor", "tensor"]
