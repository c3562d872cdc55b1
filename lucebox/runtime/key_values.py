"""The memory of keys and values on one device or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from lucebox.core import Int32Array
from lucebox.errors import ConfigError, OutOfMemoryError
from lucebox.ggml._api import Type
from lucebox.ggml.library import Library
from lucebox.models.forward import KeyValues
from lucebox.models.hparams import Hparams

KV_TYPES = {"f32": Type.F32, "f16": Type.F16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0}


def parse_kv_type(name: str, hparams: Hparams) -> Type:
    """Raises ConfigError for a name that is none of KV_TYPES, or a type whose blocks the heads of this model
    cannot be cut into."""
    if name not in KV_TYPES:
        raise ConfigError(f"Unknown kv-type {name!r}", remedy=f"use one of {', '.join(KV_TYPES)}")
    element = KV_TYPES[name]
    n_block, _ = _block(element)
    for head_dim in (hparams.head_dim_k, hparams.head_dim_v):
        if head_dim % n_block:
            raise ConfigError(
                f"Keys and values cannot be {name}: heads of {head_dim} elements are no whole blocks of "
                f"{n_block}",
                remedy="use --kv-type f16, or f32",
            )
    return element


def row_bytes(element: Type, n: int) -> int:
    """What `n` elements in a row take."""
    n_block, block_bytes = _block(element)
    return n // n_block * block_bytes


def kv_bytes(hparams: Hparams, n_cells: int, element: Type) -> int:
    """What KeyValueMemory of these cells takes, the scratch cell included."""
    h = hparams
    per_head = row_bytes(element, h.head_dim_k) + row_bytes(element, h.head_dim_v)
    return (n_cells + 1) * h.n_layers * h.n_heads_kv * per_head


def kv_shapes(hparams: Hparams, n_cells: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """A layer's keys and its values, ne0 first. Behind `n_cells` cells comes a scratch cell."""
    h = hparams
    return (h.head_dim_k, n_cells + 1, h.n_heads_kv), (h.head_dim_v, n_cells + 1, h.n_heads_kv)


@dataclass(frozen=True, slots=True)
class Plane:
    """The keys or the values of one layer in memory: uint8[n_heads, n_cells, n_bytes], elements packed."""

    tensor: int
    n_heads: int
    n_cells: int
    n_bytes: int


def _block(element: Type) -> tuple[int, int]:
    """Elements and bytes."""
    n_elements, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(int(element))]
    return n_elements, n_bytes


class KeyValueMemory:
    """Cleared memory for the keys and values of `n_cells` cells, and a scratch cell behind them that
    rows of padding write to. Owns its buffers, one for each device.

    `layers` has the device of each layer, an index into `buffer_types`. Cleared, because batched attention
    multiplies masked values by zero, and 0 · NaN is NaN.
    """

    def __init__(
        self,
        library: Library,
        buffer_types: Sequence[int],
        layers: Sequence[int],
        hparams: Hparams,
        n_cells: int,
        element: Type,
    ) -> None:
        assert len(layers) == hparams.n_layers
        self._library = library
        self._hparams = hparams
        self._element = element
        self._contexts: list[int] = []
        self._buffers: list[int] = []
        self.scratch_cell = n_cells
        self.device_bytes = [0] * len(buffer_types)
        keys, values = [0] * hparams.n_layers, [0] * hparams.n_layers
        try:
            for device, buffer_type in enumerate(buffer_types):
                here = [layer for layer, owner in enumerate(layers) if owner == device]
                if here:
                    tensors = self._allocate(buffer_type, device, len(here), hparams, n_cells, element)
                    for layer, (key, value) in zip(here, tensors, strict=True):
                        keys[layer], values[layer] = key, value
        except BaseException:
            self.close()
            raise
        self.tensors = KeyValues(keys, values)

    @property
    def n_bytes(self) -> int:
        return sum(self.device_bytes)

    def planes(self) -> list[Plane]:
        """Keys of all layers, then values."""
        h, n_cells = self._hparams, self.scratch_cell + 1
        return [
            Plane(tensor, h.n_heads_kv, n_cells, row_bytes(self._element, head_dim))
            for tensors, head_dim in ((self.tensors.keys, h.head_dim_k), (self.tensors.values, h.head_dim_v))
            for tensor in tensors
        ]

    def read(self, cells: Int32Array) -> Iterator[NDArray[np.uint8]]:
        """uint8[n_heads, len(cells), n_bytes] of each plane."""
        for plane in self.planes():
            yield self._fetch(plane)[:, cells]

    def write(self, cells: Int32Array, contents: Iterable[NDArray[np.uint8]]) -> None:
        """Puts what `read` gave into `cells`; nothing may be computed meanwhile."""
        for plane, content in zip(self.planes(), contents, strict=True):
            whole = self._fetch(plane)
            whole[:, cells] = content
            self._library.ggml_backend_tensor_set(plane.tensor, whole.ctypes.data, 0, whole.nbytes)

    def _fetch(self, plane: Plane) -> NDArray[np.uint8]:
        whole = np.empty((plane.n_heads, plane.n_cells, plane.n_bytes), np.uint8)
        self._library.ggml_backend_tensor_get(plane.tensor, whole.ctypes.data, 0, whole.nbytes)
        return whole

    def _allocate(
        self, buffer_type: int, device: int, n_layers: int, hparams: Hparams, n_cells: int, element: Type
    ) -> list[tuple[int, int]]:
        """Keys and values of some layers, together on one device."""
        library, context = self._library, self._library.new_context(2 * n_layers)
        self._contexts.append(context)
        shapes = kv_shapes(hparams, n_cells)
        tensors = [
            (
                library.ggml_new_tensor_3d(context, element, *shapes[0]),
                library.ggml_new_tensor_3d(context, element, *shapes[1]),
            )
            for _ in range(n_layers)
        ]
        buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type)
        if not buffer:
            needed = kv_bytes(hparams, n_cells, element) * n_layers // hparams.n_layers
            raise OutOfMemoryError(
                f"{needed / 2**20:,.0f} MiB of keys and values cannot be allocated",
                remedy="use a smaller --ctx-size or --parallel, or --kv-type q8_0",
            )
        self._buffers.append(buffer)
        library.ggml_backend_buffer_clear(buffer, 0)
        self.device_bytes[device] = int(library.ggml_backend_buffer_get_size(buffer))
        return tensors

    def close(self) -> None:
        """Frees the memory; idempotent."""
        while self._buffers:
            self._library.ggml_backend_buffer_free(self._buffers.pop())
        while self._contexts:
            self._library.ggml_free(self._contexts.pop())
