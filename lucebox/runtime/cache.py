"""Which cells hold which sequence. The keys and values themselves lie in KeyValueMemory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Int32Array
from lucebox.errors import OutOfCellsError
from lucebox.runtime.cells import CellPool
from lucebox.runtime.rows import Rows

UInt16Array = NDArray[np.uint16]
VISIBLE = np.uint16(0x0000)  # 0.0 as float16, what the mask adds to a score
HIDDEN = np.uint16(0xFC00)  # -inf as float16


@dataclass(slots=True, eq=False)
class Snapshot:
    """The cells of a sequence at one moment, held until discarded."""

    cells: Int32Array
    discarded: bool = False


@dataclass(slots=True, eq=False)
class _Sequence:
    """`cells[:n]` in token order; `mask` is the row that attention adds for a row behind them."""

    cells: Int32Array
    mask: UInt16Array
    n: int = 0
    n_kv: int = 0  # highest cell + 1

    def held(self) -> Int32Array:
        return self.cells[: self.n]


@dataclass(slots=True, eq=False)
class Pending:
    """Rows of the last forward whose cells no sequence owns yet."""

    rows: Rows
    cells: Int32Array
    open_sequences: set[int] = field(default_factory=set)


class Cache:
    """Cells of several sequences that may share them.

    A forward reserves one cell per row; `commit` makes rows part of their sequence and frees the rest, so
    that an accepted path of a tree needs no copying. Not thread safe: the engine's step is its only writer.
    """

    can_truncate = True
    can_fork = True
    can_snapshot = True

    def __init__(self, n_cells: int, n_sequences: int) -> None:
        self._pool = CellPool(n_cells)
        self._sequences = [
            _Sequence(np.empty(64, np.int32), np.full(n_cells, HIDDEN, np.uint16)) for _ in range(n_sequences)
        ]
        self._snapshots: list[Snapshot] = []
        self._kept = np.zeros(n_cells, np.int32)
        self._pending: Pending | None = None

    @property
    def n_cells(self) -> int:
        return self._pool.n_cells

    @property
    def n_sequences(self) -> int:
        return len(self._sequences)

    @property
    def n_free(self) -> int:
        """Cells that no sequence, snapshot or pending row holds, and nobody keeps."""
        return self._pool.n_free

    @property
    def n_kept(self) -> int:
        """Cells that are kept, whoever else holds them."""
        return int((self._kept > 0).sum())

    def length(self, sequence: int) -> int:
        """Committed tokens of `sequence`."""
        return self._sequences[sequence].n

    # What the runtime asks for.

    def reserve(self, rows: Rows) -> Int32Array:
        """int32[n_rows]: a cell per row, pending until committed or until the next forward. Raises
        OutOfCellsError, changing nothing but that rows left pending by an earlier forward are gone.

        The cells of a sequence ascend with its tokens, as long as free ones lie above: attention sums in the
        order of the cells, so its last bits do not depend on which cells others hold.
        """
        self.drop_pending()
        if len(rows) > self.n_free:
            raise OutOfCellsError(len(rows), self.n_free, self.n_cells)
        sequences = rows.distinct_sequences()
        if len(sequences) == 1:
            cells = self._pool.take(len(rows), above=self._last_cell(int(rows.sequences[0])))
        else:
            cells = np.empty(len(rows), np.int32)
            for sequence in sorted(sequences):
                own = np.flatnonzero(rows.sequences == sequence)
                cells[own] = self._pool.take(len(own), above=self._last_cell(sequence))
        self._pending = Pending(rows, cells, sequences)
        return cells

    def _last_cell(self, sequence: int) -> int:
        state = self._sequences[sequence]
        return int(state.cells[state.n - 1]) if state.n else -1

    def drop_pending(self) -> None:
        """Frees the cells of rows that were never committed."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        for sequence in pending.open_sequences:
            self._pool.drop(pending.cells[pending.rows.sequences == sequence])

    def mask(self, sequence: int) -> UInt16Array:
        """float16 bits [n_cells]: 0 where a cell belongs to `sequence`, -inf elsewhere. Not to be written."""
        return self._sequences[sequence].mask

    def cells(self, sequence: int) -> Int32Array:
        """int32[length]: the cells of `sequence` in the order of its tokens. Not to be written."""
        return self._sequences[sequence].held()

    def n_kv(self, sequence: int) -> int:
        """Highest cell of `sequence` plus one."""
        return self._sequences[sequence].n_kv

    # What the engine and drafters ask for.

    def commit(self, sequence: int, rows: Sequence[int]) -> None:
        """`rows`, indices into the last forward's batch, become part of `sequence`, in order; the cells of
        its other rows are freed. Once per sequence and forward."""
        pending = self._pending
        assert pending is not None, "no forward is pending"
        assert sequence in pending.open_sequences, "no forward of this sequence is pending"
        pending.open_sequences.discard(sequence)
        state = self._sequences[sequence]
        if len(pending.cells) == 1 and len(rows) == 1:  # one step of plain decoding
            assert rows[0] == 0, "a row that is not in the batch"
            self._append(state, pending.cells)
            return
        index = np.asarray(rows, np.int64)
        left = pending.rows.sequences == sequence
        assert left[index].all(), "rows of another sequence"
        n_own = int(left.sum())
        left[index] = False
        assert int(left.sum()) == n_own - len(index), "a row twice"
        self._append(state, pending.cells[index])
        self._pool.drop(pending.cells[left])

    def truncate(self, sequence: int, n_tokens: int) -> None:
        """Only the first `n_tokens` stay."""
        state = self._sequences[sequence]
        assert 0 <= n_tokens <= state.n, f"cannot truncate {state.n} tokens to {n_tokens}"
        if n_tokens == state.n:
            return
        gone = state.cells[n_tokens : state.n]
        state.mask[gone] = HIDDEN
        self._pool.drop(gone)
        state.n = n_tokens
        state.n_kv = int(state.held().max()) + 1 if n_tokens else 0

    def fork(self, source: int, target: int) -> None:
        """`target`, which must be empty, starts with the tokens of `source`, sharing their cells."""
        assert source != target, "a fork is of another sequence"
        assert self.length(target) == 0, "the target of a fork is empty"
        held = self._sequences[source].held()
        self._pool.hold(held)
        self._append(self._sequences[target], held)

    def release(self, sequence: int) -> None:
        """Forgets all of `sequence`, rows that are pending included."""
        pending = self._pending
        if pending is not None and sequence in pending.open_sequences:
            pending.open_sequences.discard(sequence)
            self._pool.drop(pending.cells[pending.rows.sequences == sequence])
        self.truncate(sequence, 0)

    def snapshot(self, sequence: int) -> Snapshot:
        """Keeps the present tokens of `sequence` alive, whatever becomes of it, until `discard`."""
        taken = Snapshot(self._sequences[sequence].held().copy())
        self._pool.hold(taken.cells)
        self._snapshots.append(taken)
        return taken

    def restore(self, sequence: int, snapshot: Snapshot) -> None:
        """`sequence` holds again what `snapshot` saw; the snapshot stays valid."""
        assert not snapshot.discarded, "this snapshot was discarded"
        self.release(sequence)
        self._pool.hold(snapshot.cells)
        self._append(self._sequences[sequence], snapshot.cells)

    def discard(self, snapshot: Snapshot) -> None:
        """Frees what only `snapshot` keeps alive."""
        assert not snapshot.discarded, "this snapshot was discarded before"
        snapshot.discarded = True
        self._snapshots.remove(snapshot)
        self._pool.drop(snapshot.cells)

    # What the prefix cache asks for.

    def adopt(self, sequence: int, cells: Int32Array) -> None:
        """`sequence`, which must be empty, begins with what `cells` hold, in order: keys and values of tokens
        at positions 0, 1, 2, ... They are shared with whoever holds them now."""
        assert self.length(sequence) == 0, "only an empty sequence can adopt cells"
        assert not len(cells) or self._pool.holders(cells).min() > 0, "a free cell holds nothing"
        self._pool.hold(cells)
        self._append(self._sequences[sequence], cells)

    def keep(self, cells: Int32Array) -> None:
        """`cells`, which are distinct and held by somebody, stay as they are until they are left."""
        assert not len(cells) or self._pool.holders(cells).min() > 0, "a free cell holds nothing"
        self._pool.hold(cells)
        self._kept[cells] += 1

    def keep_free(self, n: int) -> Int32Array:
        """int32[n]: free cells, kept from now on, to be written by other means than a forward. Raises
        OutOfCellsError."""
        cells = self._pool.take(n)
        self._kept[cells] += 1
        return cells

    def leave(self, cells: Int32Array) -> None:
        """Undoes `keep`: those that nobody holds any more are free."""
        self._kept[cells] -= 1
        assert not len(cells) or self._kept[cells].min() >= 0, "a cell was left that was not kept"
        self._pool.drop(cells)

    def is_shared(self, cells: Int32Array) -> bool:
        """Whether any of `cells` has several holders."""
        return bool((self._pool.holders(cells) > 1).any())

    def check_integrity(self) -> None:
        """Asserts every invariant; for tests and for an idle engine."""
        holders = np.zeros(self.n_cells, np.int32)
        for state in self._sequences:
            held = state.held()
            assert len(np.unique(held)) == state.n, "a sequence holds a cell twice"
            holders[held] += 1
            expected = np.full(self.n_cells, HIDDEN, np.uint16)
            expected[held] = VISIBLE
            assert np.array_equal(state.mask, expected), "a mask row disagrees with its cells"
            assert state.n_kv == (int(held.max()) + 1 if state.n else 0), "n_kv is wrong"
        holders += self._kept
        for snapshot in self._snapshots:
            holders[snapshot.cells] += 1
        if self._pending is not None:
            for sequence in self._pending.open_sequences:
                holders[self._pending.cells[self._pending.rows.sequences == sequence]] += 1
        self._pool.check_integrity(holders)

    def _append(self, state: _Sequence, cells: Int32Array) -> None:
        """Adds cells, already held on behalf of `state`, behind its tokens."""
        n = state.n + len(cells)
        if n > len(state.cells):
            grown = np.empty(max(n, 2 * len(state.cells)), np.int32)
            grown[: state.n] = state.held()
            state.cells = grown
        state.cells[state.n : n] = cells
        state.n = n
        if len(cells) == 1:  # one step of plain decoding: no array work
            cell = int(cells[0])
            state.mask[cell] = VISIBLE
            state.n_kv = max(state.n_kv, cell + 1)
        elif len(cells):
            state.mask[cells] = VISIBLE
            state.n_kv = max(state.n_kv, int(cells.max()) + 1)
