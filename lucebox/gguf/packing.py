"""Matrices in a layout of our own, with which checking eight tokens costs little more than computing one.

The kernels (kernels/packed.h) take part in ggml's graphs as operations of their own kind. Weights keep their
values, only their order changes; activations are rounded to 8 bits, as in ggml's own kernels.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

from gguf import GGMLQuantizationType as Type

from lucebox.ggml._api import Tensor
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo

_BLOCK_GROUPS = 64  # groups of rows packed by one task


class _Matrix(ctypes.Structure):
    """lb_matrix of kernels/packed.h."""

    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "k", "n_out", "data", "ne", "nb", "src")]


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """What graphs multiply with: `tensor` holds the weights, `address` what the kernels need to know of them.

    The structure at `address` must outlive every graph that was built with it.
    """

    tensor: int
    k: int
    n_out: int
    structure: ctypes.Structure

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)

    @property
    def row_bytes(self) -> int:
        """The size of a quantised row of activations."""
        return int(_kernels().row_bytes(self.k))

    @property
    def quantise_address(self) -> int:
        return int(_kernels().QUANTISE_ADDRESS)

    @property
    def multiply_address(self) -> int:
        return int(_kernels().MULTIPLY_ADDRESS)


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs `info`, a matrix of the file."""

    info: TensorInfo

    @property
    def _kind(self) -> int:
        return int(_kinds()[self.info.type])

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Groups of rows that can be packed independently: first, and one behind the last."""
        n_groups = self.info.shape[1] // _kernels().N_LANES
        for first in range(0, n_groups, _BLOCK_GROUPS):
            yield first, min(n_groups, first + _BLOCK_GROUPS)

    def pack(self, source: int, target: int, first: int, last: int) -> None:
        """Packs some groups from address `source`, where the matrix begins, to address `target`."""
        _kernels().pack(self._kind, source, target, self.info.shape[0], first, last)

    def matrix(self, tensor: int) -> PackedMatrix:
        """The matrix that `tensor` will hold."""
        k, n_out = self.info.shape
        offsets = (getattr(Tensor, name).offset for name in ("data", "ne", "nb", "src"))
        return PackedMatrix(tensor, k, n_out, _Matrix(self._kind, k, n_out, *offsets))


def is_available() -> bool:
    """Whether the kernels were built, and this processor has what they need."""
    try:
        return bool(_kernels().is_supported())
    except ModuleNotFoundError:
        return False


def packed_info(spec: TensorSpec, info: TensorInfo) -> TensorInfo | None:
    """`info` as it lies in memory when packed: bytes; None for what cannot be packed."""
    if spec.use is not Use.MATRIX or len(info.shape) != 2 or info.type not in _kinds():
        return None
    kernels, (k, n_out) = _kernels(), info.shape
    if k % kernels.N_SUPER or n_out % kernels.N_LANES:
        return None
    n_bytes = kernels.packed_bytes(_kinds()[info.type], k, n_out)
    return replace(info, type=Type.I8, shape=(n_bytes,), n_bytes=n_bytes)


@cache
def _kernels() -> ModuleType:
    return importlib.import_module("lucebox._kernels.packed")


@cache
def _kinds() -> dict[Type, int]:
    kernels = _kernels()
    return {Type.Q4_K: kernels.Q4_K, Type.Q6_K: kernels.Q6_K}
