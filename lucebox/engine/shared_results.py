"""Memory that an engine shares with the process of its draft model: SharedResults."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import Self

import numpy as np

from lucebox.core import Float32Array

_HEADER_BYTES = 64  # a cache line: the pulse, and the results from the next one on


class SharedResults:
    """Room for the results of one forward, and a counter that shows that the other side lives.

    The memory is taken when it is first written to. It is freed when nobody refers to it any more.
    """

    def __init__(self, fd: int) -> None:
        """Maps all of the file `fd`, which can be closed then."""
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self._pulse = np.frombuffer(self._memory, np.uint64, 1)
        self._floats: Float32Array = np.frombuffer(self._memory, np.float32, offset=_HEADER_BYTES)

    @classmethod
    def create(cls, n_floats: int) -> tuple[Self, int]:
        """A new one, and its file, for whom it is to be shared with."""
        fd = _new_file()
        try:
            os.ftruncate(fd, _HEADER_BYTES + 4 * n_floats)
            return cls(fd), fd
        except BaseException:
            os.close(fd)
            raise

    @property
    def pulse(self) -> int:
        """Grows while the other side lives."""
        return int(self._pulse[0])

    def beat(self) -> None:
        self._pulse[0] += np.uint64(1)

    def view(self, offset: int, n_rows: int, n_columns: int) -> Float32Array:
        """float32[n_rows, n_columns], `offset` floats behind the start."""
        return self._floats[offset : offset + n_rows * n_columns].reshape(n_rows, n_columns)


def _new_file() -> int:
    """A file without a name."""
    if sys.platform == "linux":
        return os.memfd_create("lucebox-draft")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
