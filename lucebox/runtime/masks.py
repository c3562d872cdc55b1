"""Attention masks: which cells each row of a batch may attend to."""

from __future__ import annotations

import numpy as np

from lucebox.core import Int32Array
from lucebox.runtime.cache import HIDDEN, VISIBLE, Cache, UInt16Array
from lucebox.runtime.rows import Rows


class MaskWriter:
    """Fills float16 masks [n_rows, n_kv] with 0 for cells that a row sees and -inf for all others.

    A row sees the committed cells of its sequence, its ancestors in the batch, and itself; with a
    sliding window of W, only those less than W positions back.
    """

    def __init__(self, n_batch: int, sliding_window: int = 0) -> None:
        self._window = sliding_window
        self._causal = np.where(np.tri(n_batch, dtype=bool), VISIBLE, HIDDEN)

    def write(self, mask: UInt16Array, rows: Rows, cells: Int32Array, cache: Cache) -> None:
        """`mask` may have more rows than the batch: padding sees one cell, so that its softmax is defined."""
        n, n_kv = len(rows), mask.shape[1]
        if n == 1:
            mask[0] = cache.mask(int(rows.sequences[0]))[:n_kv]
            mask[0, cells[0]] = VISIBLE
        elif not self._write_chain(mask, rows, cells, cache):
            self._write_tree(mask, rows, cells, cache)
        if self._window:
            self._hide_distant(mask, rows, cells, cache)
        if n < len(mask):
            mask[n:] = HIDDEN
            mask[n:, 0] = VISIBLE

    def _write_chain(self, mask: UInt16Array, rows: Rows, cells: Int32Array, cache: Cache) -> bool:
        """The usual case, one chain in neighbouring cells; False when the batch is another."""
        n, first = len(rows), int(cells[0])
        if int(cells[-1]) - first != n - 1 or rows.parents[0] >= 0:
            return False
        if not np.array_equal(rows.parents[1:], np.arange(n - 1)):
            return False
        mask[:n] = cache.mask(int(rows.sequences[0]))[: mask.shape[1]]
        mask[:n, first : first + n] = self._causal[:n, :n]
        return True

    def _write_tree(self, mask: UInt16Array, rows: Rows, cells: Int32Array, cache: Cache) -> None:
        n_kv = mask.shape[1]
        sequences, parents = rows.sequences.tolist(), rows.parents.tolist()
        for i, cell in enumerate(cells.tolist()):
            parent = parents[i]
            mask[i] = mask[parent] if parent >= 0 else cache.mask(sequences[i])[:n_kv]
            mask[i, cell] = VISIBLE

    def _hide_distant(self, mask: UInt16Array, rows: Rows, cells: Int32Array, cache: Cache) -> None:
        for i, position in enumerate(rows.positions.tolist()):
            n_hidden = position - self._window + 1
            if n_hidden <= 0:
                continue
            sequence = rows.sequences[i]
            mask[i, cache.cells(int(sequence))[:n_hidden]] = HIDDEN
            distant = (rows.sequences == sequence) & (rows.positions < n_hidden)
            mask[i, cells[distant]] = HIDDEN
