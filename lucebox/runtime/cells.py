"""The pool of key/value cells: who holds each one, and which are free."""

from __future__ import annotations

import numpy as np

from lucebox.core import Int32Array
from lucebox.errors import OutOfCellsError


class CellPool:
    """`n_cells` reference-counted cells. The lowest that serve are handed out first, so that graphs stay
    short."""

    def __init__(self, n_cells: int) -> None:
        self.n_cells = n_cells
        self.n_free = n_cells
        self._holders = np.zeros(n_cells, np.int32)
        self._lowest_free = 0  # no free cell below this one

    def take(self, n: int, *, above: int = -1) -> Int32Array:
        """int32[n]: the n lowest free cells above the cell `above` or, where there are too few of them, the n
        lowest of all; ascending, each held once. Raises OutOfCellsError."""
        if n > self.n_free:
            raise OutOfCellsError(n, self.n_free, self.n_cells)
        low = max(self._lowest_free, above + 1)
        taken = self._free_from(low, n)
        if len(taken) < n:
            low = self._lowest_free
            taken = self._free_from(low, n)
        self._holders[taken] = 1
        self.n_free -= n
        if n and low == self._lowest_free:
            self._lowest_free = int(taken[-1]) + 1
        return taken

    def _free_from(self, low: int, n: int) -> Int32Array:
        """The first n free cells from `low` on, or all there are."""
        if n == 1 and low < self.n_cells and self._holders[low] == 0:  # one step of plain decoding, mostly
            return np.array((low,), np.int32)
        # The usual case: free cells lie together, so a short window is searched first.
        cells = np.flatnonzero(self._holders[low : low + 4 * n + 64] == 0)[:n]
        if len(cells) < n:
            cells = np.flatnonzero(self._holders[low:] == 0)[:n]
        return (cells + low).astype(np.int32)

    def hold(self, cells: Int32Array) -> None:
        """One more holder for each of `cells`, which are distinct."""
        self._holders[cells] += 1

    def drop(self, cells: Int32Array) -> None:
        """One holder fewer for each of `cells`, which are distinct; those without any become free."""
        if not len(cells):
            return
        left = self._holders[cells] - 1
        assert left.min() >= 0, "a cell was dropped more often than held"
        self._holders[cells] = left
        freed = cells[left == 0]
        if len(freed):
            self.n_free += len(freed)
            self._lowest_free = min(self._lowest_free, int(freed.min()))

    def holders(self, cells: Int32Array) -> Int32Array:
        """int32[n]: how many hold each of `cells`."""
        holders: Int32Array = self._holders[cells]
        return holders

    def check_integrity(self, expected_holders: Int32Array) -> None:
        """Asserts that the counts are `expected_holders`, int32[n_cells]."""
        assert np.array_equal(self._holders, expected_holders), "cells have other holders than recorded"
        assert self.n_free == int((self._holders == 0).sum()), "n_free is wrong"
        assert (self._holders[: self._lowest_free] > 0).all(), "a free cell lies below the lowest free one"
