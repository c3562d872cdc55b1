"""Where a text that grows goes on from what is known of it already."""

from __future__ import annotations

from collections.abc import Sequence

_CHUNK = 256


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first elements `a` and `b` share. Compares slices first, which C does."""
    limit = min(len(a), len(b))
    n = 0
    while n < limit and a[n : n + _CHUNK] == b[n : n + _CHUNK]:
        n += _CHUNK
    while n < limit and a[n] == b[n]:
        n += 1
    return min(n, limit)
