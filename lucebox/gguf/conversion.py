"""Numbers of one ggml type into another, through float32, a few rows at a time, on all threads."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType as Type

from lucebox.errors import UnsupportedModelError
from lucebox.ggml import _api
from lucebox.ggml.library import Library
from lucebox.gguf.tensors import TensorInfo

_PART_ELEMENTS = 1 << 17  # as float32 half a MiB: stays in a core's cache between the two steps
_BLOCK_ELEMENTS = 1 << 20  # of one task

_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows of a tensor that are converted as one task: `n_rows` from `first` on."""

    first: int
    n_rows: int


class RowConverter:
    """Converts rows of one tensor from `source`'s type to `target`'s. Threads may share it.

    ggml's functions do the work and hold no GIL. Memory: half a MiB for each call under way.
    """

    def __init__(self, library: Library, source: TensorInfo, target: TensorInfo) -> None:
        self._library = library
        self._type = target.type
        self._n_per_row = source.shape[0]
        self.n_rows = source.n_elements // self._n_per_row
        self._source_row_bytes = source.n_bytes // self.n_rows
        self.target_row_bytes = target.n_bytes // self.n_rows
        traits = _api.TypeTraits.from_address(library.ggml_get_type_traits(source.type))
        self._to_float = None if source.type == Type.F32 else _ToFloat(traits.to_float)
        library.ggml_quantize_init(target.type)  # tables that some types need; not to be made by two threads

    def blocks(self) -> Iterator[RowBlock]:
        """All rows, in tasks of about a million numbers."""
        n = max(1, _BLOCK_ELEMENTS // self._n_per_row)
        for first in range(0, self.n_rows, n):
            yield RowBlock(first, min(n, self.n_rows - first))

    def convert(self, block: RowBlock, source: int, target: int) -> None:
        """Reads rows of the tensor whose data begin at address `source`; the first goes to address `target`,
        the others, of `target_row_bytes` each, behind it."""
        n_part = max(1, _PART_ELEMENTS // self._n_per_row)
        scratch = np.empty(min(n_part, block.n_rows) * self._n_per_row, np.float32)
        end = block.first + block.n_rows
        for first in range(block.first, end, n_part):
            n_rows = min(n_part, end - first)
            values = source + first * self._source_row_bytes
            if self._to_float is not None:
                self._to_float(values, scratch.ctypes.data, n_rows * self._n_per_row)
                values = scratch.ctypes.data
            destination = target + (first - block.first) * self.target_row_bytes
            self._library.ggml_quantize_chunk(
                self._type, values, destination, 0, n_rows, self._n_per_row, None
            )


def in_order(pool: ThreadPoolExecutor, tasks: Iterable[Callable[[], int]], *, n_ahead: int) -> Iterator[int]:
    """Results of `tasks`, of which at most `n_ahead` are taken before one is waited for: so is their memory
    bounded."""
    waiting: deque[Future[int]] = deque()
    for task in tasks:
        if len(waiting) >= n_ahead:
            yield waiting.popleft().result()
        waiting.append(pool.submit(task))
    while waiting:
        yield waiting.popleft().result()


def check_readable(library: Library, path: object, info: TensorInfo) -> None:
    """Raises UnsupportedModelError for a tensor whose type ggml cannot turn into float32."""
    traits = _api.TypeTraits.from_address(library.ggml_get_type_traits(info.type))
    if info.type != Type.F32 and not traits.to_float:
        raise UnsupportedModelError(
            path,
            f"tensor {info.name}",
            f"{info.type.name} cannot be converted",
            remedy="keep the types of the file",
        )
