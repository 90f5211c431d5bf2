"""As much of torch.Tensor as travels through the LLM API: a numpy array with a few of its methods."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Tensor:
    """Wraps an array. Index assignment writes through, as on a tensor."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def float(self) -> "Tensor":
        return Tensor(self._array.astype(np.float32))

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> NDArray[Any]:
        return self._array

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value


def tensor(values: Any) -> Tensor:
    """Copy anything array-like, as torch.tensor does."""
    return Tensor(np.array(values.numpy() if isinstance(values, Tensor) else values, np.float32))
