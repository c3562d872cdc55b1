"""Memory that a burst of large requests took, back to the system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

# Of mallopt(3), in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8

N_ARENAS = 2
LARGE_BYTES = 256 * 1024


def keep_little() -> None:
    """Has glibc return what is freed. By default each thread that tokenizes gets a heap of its own, and every
    large block that is freed raises the size from which blocks are mapped, and unmapped, by themselves.

    Other C libraries are left as they are.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_ARENA_MAX, N_ARENAS)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)
