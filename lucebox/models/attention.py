"""Attention by a kernel of our own, in ggml's graphs: what a row gets depends on what it sees alone.

ggml's sums the cells in another order for one row, for several and for many, and by where they lie; what a
request is answered would hang on who is served beside it. See kernels/attention.h.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from types import ModuleType
from typing import Self

from lucebox.ggml._api import Tensor, Type
from lucebox.models.hparams import Hparams

_ELEMENTS = (Type.F16, Type.F32)
_HEAD_STEP = 16  # elements of a head that the kernel takes at a time


class _Structure(ctypes.Structure):
    """lb_attention of kernels/attention.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("n_heads", "n_heads_kv", "dk", "dv", "is_half")),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("data", "ne", "nb", "src")),
    ]


class OwnAttention:
    """The kernel for one model, whose keys and values are of type `element`. It must outlive every graph that
    was built with it."""

    def __init__(self, hparams: Hparams, element: Type) -> None:
        self._hparams = hparams
        self._element = element
        self._structures: dict[float, _Structure] = {}

    @classmethod
    def for_model(cls, hparams: Hparams, element: Type) -> Self | None:
        """None where the kernel was not built, or cannot serve this processor, model or type."""
        heads = (hparams.head_dim_k, hparams.head_dim_v)
        if element not in _ELEMENTS or not is_available():
            return None
        if max(heads) > _kernel().MAX_HEAD or any(n % _HEAD_STEP for n in heads):
            return None
        return cls(hparams, element)

    @property
    def function(self) -> int:
        """The address of a ggml_custom_op_t."""
        return int(_kernel().ATTEND_ADDRESS)

    def userdata(self, scale: float) -> int:
        """The address of what the function needs to know."""
        if scale not in self._structures:
            h = self._hparams
            offsets = (getattr(Tensor, name).offset for name in ("data", "ne", "nb", "src"))
            is_half = self._element == Type.F16
            self._structures[scale] = _Structure(
                h.n_heads, h.n_heads_kv, h.head_dim_k, h.head_dim_v, is_half, scale, *offsets
            )
        return ctypes.addressof(self._structures[scale])


def is_available() -> bool:
    """Whether the kernel was built, and this processor has what it needs."""
    try:
        return bool(_kernel().is_supported())
    except ModuleNotFoundError:
        return False


@cache
def _kernel() -> ModuleType:
    return importlib.import_module("lucebox._kernels.attention")
