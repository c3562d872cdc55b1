"""ggml's part in tests of our own kernels: a ggml_tensor over an array."""

from __future__ import annotations

import ctypes
from typing import Any

from numpy.typing import NDArray

from lucebox.ggml._api import Tensor


def fake_tensor(array: NDArray[Any], *sources: Tensor) -> Tensor:
    """As ggml has it: axes in reverse order. `array` and `sources` must outlive it."""
    made = Tensor(data=array.ctypes.data)
    for i, (n, stride) in enumerate(zip(array.shape[::-1], array.strides[::-1], strict=True)):
        made.ne[i], made.nb[i] = n, stride
    for i, source in enumerate(sources):
        made.src[i] = ctypes.addressof(source)
    return made
