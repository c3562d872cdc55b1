"""The memory of keys and values on a device."""

from __future__ import annotations

from lucebox.errors import ConfigError, OutOfMemoryError
from lucebox.ggml._api import Type
from lucebox.ggml.library import Library
from lucebox.models.forward import KeyValues
from lucebox.models.hparams import Hparams

KV_TYPES = {"f16": Type.F16, "f32": Type.F32}
_ELEMENT_BYTES = {Type.F16: 2, Type.F32: 4}


def parse_kv_type(name: str) -> Type:
    """Raises ConfigError for a name that is none of KV_TYPES."""
    if name not in KV_TYPES:
        raise ConfigError(f"Unknown kv-type {name!r}", remedy=f"use one of {', '.join(KV_TYPES)}")
    return KV_TYPES[name]


def kv_bytes(hparams: Hparams, n_cells: int, element: Type) -> int:
    """What KeyValueMemory of these cells takes, the scratch cell included."""
    per_cell = hparams.n_layers * (hparams.n_embd_k + hparams.n_embd_v) * _ELEMENT_BYTES[element]
    return (n_cells + 1) * per_cell


class KeyValueMemory:
    """Cleared memory for the keys and values of `n_cells` cells, and a scratch cell behind them that
    rows of padding write to. Owns its buffer.

    Cleared, because batched attention multiplies masked values by zero, and 0 · NaN is NaN.
    """

    def __init__(
        self, library: Library, buffer_type: int, hparams: Hparams, n_cells: int, element: Type
    ) -> None:
        self._library = library
        self._context: int | None = library.new_context(2 * hparams.n_layers)
        self._buffer: int | None = None
        h, n_rows = hparams, n_cells + 1
        keys, values = [], []
        for _ in range(h.n_layers):
            keys.append(
                library.ggml_new_tensor_3d(self._context, element, h.head_dim_k, n_rows, h.n_heads_kv)
            )
            values.append(
                library.ggml_new_tensor_3d(self._context, element, h.head_dim_v, n_rows, h.n_heads_kv)
            )
        self._buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(self._context, buffer_type)
        if not self._buffer:
            self.close()
            raise OutOfMemoryError(
                f"{kv_bytes(h, n_cells, element) / 2**20:,.0f} MiB of keys and values cannot be allocated",
                remedy="use a smaller --ctx-size or --parallel, or --kv-type f16",
            )
        library.ggml_backend_buffer_clear(self._buffer, 0)
        self.n_bytes = int(library.ggml_backend_buffer_get_size(self._buffer))
        self.scratch_cell = n_cells
        self.tensors = KeyValues(keys, values, n_rows, _ELEMENT_BYTES[element])

    def close(self) -> None:
        """Frees the memory; idempotent."""
        if self._buffer:
            self._library.ggml_backend_buffer_free(self._buffer)
        if self._context:
            self._library.ggml_free(self._context)
        self._buffer = self._context = None
