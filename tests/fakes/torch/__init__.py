"""As much of torch as the executor over TensorRT-LLM touches: tensors around numpy arrays, with a device and a stream.

A tensor on the GPU may be changed only on the stream that computes it: elsewhere the change would be lost.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import cuda

float16 = "float16"
bfloat16 = "bfloat16"
float32 = "float32"


class Tensor:
    """Wraps an array. Index assignment and in-place arithmetic write through, as on a tensor."""

    def __init__(
        self, array: NDArray[Any], dtype: str = float32, device: str = "cpu", stream: int | None = None
    ) -> None:
        self._array = array
        self.dtype = dtype
        self.device = device
        self._stream = stream

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def float(self) -> "Tensor":
        return Tensor(self._array.astype(np.float32))

    def cpu(self) -> "Tensor":
        return Tensor(self._array, self.dtype)

    def cuda(self) -> "Tensor":
        return self.to("cuda:0")

    def numpy(self) -> NDArray[Any]:
        if self.device != "cpu" or self.dtype == bfloat16:
            raise TypeError(f"can't convert a {self.dtype} tensor on {self.device} to numpy")
        return self._array

    def to(self, target: str) -> "Tensor":
        """Move to a device or convert to a dtype; float32 holds the values of all of them here."""
        if target in (float16, bfloat16, float32):
            return Tensor(self._array.astype(np.float32), target, self.device)
        return Tensor(self._array, self.dtype, target)

    def __getitem__(self, index: Any) -> "Tensor":
        return Tensor(self._array[index], self.dtype, self.device, self._stream)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check_stream()
        self._array[index] = value

    def __iadd__(self, other: "Tensor") -> "Tensor":
        self._check_stream()
        if other.device != self.device:
            raise RuntimeError("Expected all tensors to be on the same device")
        self._array += other._array
        return self

    def _check_stream(self) -> None:
        if self._stream is not None and cuda.current_stream() != self._stream:
            raise RuntimeError("the tensor was changed outside of the stream that computes it")


def from_numpy(array: NDArray[Any]) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return Tensor(array, {"f4": float32, "f2": float16}.get(array.dtype.str[1:], array.dtype.name))


def tensor(values: Any) -> Tensor:
    """Copy anything array-like."""
    return Tensor(np.array(values.numpy() if isinstance(values, Tensor) else values, np.float32))
