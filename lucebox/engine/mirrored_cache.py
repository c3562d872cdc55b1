"""A cache whose keys and values lie in another process, which repeats what is done here: MirroredCache."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.core import Int32Array
from lucebox.engine.draft_messages import (
    CacheOperation,
    Commit,
    DropPending,
    Fork,
    Release,
    Reserve,
    Truncate,
    pack_rows,
)
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows


class MirroredCache(Cache):
    """Decides here which cells hold what, and remembers what to tell the other side before its next forward.

    Which cells are taken follows from what was done before, so that both sides agree without asking. What is
    refused (OutOfCellsError) is refused here.
    """

    can_snapshot = False  # nobody asks for it, and a snapshot is no message

    def __init__(self, n_cells: int, n_sequences: int) -> None:
        super().__init__(n_cells, n_sequences)
        self._operations: list[CacheOperation] = []

    def take_operations(self) -> list[CacheOperation]:
        """What was done since the last call."""
        taken, self._operations = self._operations, []
        return taken

    def reserve_for_forward(self, rows: Rows) -> Int32Array:
        """As `reserve`, which the forward on the other side does by itself."""
        return super().reserve(rows)

    def reserve(self, rows: Rows) -> Int32Array:
        cells = super().reserve(rows)
        self._operations.append(Reserve(pack_rows(rows)))
        return cells

    def drop_pending(self) -> None:
        if self._pending is not None and self._pending.open_sequences:
            self._operations.append(DropPending())
        super().drop_pending()

    def commit(self, sequence: int, rows: Sequence[int]) -> None:
        super().commit(sequence, rows)
        self._operations.append(Commit(sequence, list(rows)))

    def truncate(self, sequence: int, n_tokens: int) -> None:
        if n_tokens != self.length(sequence):
            self._operations.append(Truncate(sequence, n_tokens))
        super().truncate(sequence, n_tokens)

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._operations.append(Fork(source, target))

    def release(self, sequence: int) -> None:
        if self._pending is not None and sequence in self._pending.open_sequences:
            self._operations.append(Release(sequence))
        super().release(sequence)  # which truncates
