"""The bookkeeping of cells, by example and against a model that shares nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lucebox.errors import OutOfCellsError
from lucebox.runtime.cache import HIDDEN, VISIBLE, Cache, Snapshot
from lucebox.runtime.rows import Rows


def _append(cache: Cache, sequence: int, n: int) -> list[int]:
    """Commits n rows of a chain and returns their cells."""
    cells = cache.reserve(Rows.chain(sequence, [0] * n, cache.length(sequence)))
    cache.commit(sequence, range(n))
    return [int(cell) for cell in cells]


def test_the_lowest_cells_are_taken_first() -> None:
    cache = Cache(n_cells=16, n_sequences=2)
    assert _append(cache, 0, 4) == [0, 1, 2, 3]
    assert _append(cache, 1, 3) == [4, 5, 6]
    assert _append(cache, 0, 1) == [7]
    cache.truncate(0, 1)
    assert _append(cache, 0, 2) == [1, 2]
    assert (cache.n_kv(0), cache.n_kv(1)) == (3, 7)


def test_the_cells_of_a_sequence_ascend_while_free_ones_lie_above() -> None:
    cache = Cache(n_cells=12, n_sequences=3)
    _append(cache, 0, 4)
    assert _append(cache, 1, 3) == [4, 5, 6]
    cache.truncate(0, 1)
    assert _append(cache, 1, 2) == [7, 8], "not 1, 2, which are free"
    cells = cache.reserve(Rows.concatenate([Rows.chain(1, [1, 2], 5), Rows.chain(0, [3], 1)]))
    assert cells.tolist() == [9, 10, 1]
    cache.commit(0, [2])
    cache.commit(1, [0, 1])
    assert _append(cache, 1, 2) == [2, 3], "only one lies above"
    assert _append(cache, 2, 1) == [11]
    cache.check_integrity()
    with pytest.raises(OutOfCellsError):
        cache.reserve(Rows.concatenate([Rows.chain(1, [1], 9), Rows.chain(0, [3], 2)]))
    cache.check_integrity()


def test_only_committed_rows_of_a_tree_keep_their_cells() -> None:
    cache = Cache(n_cells=16, n_sequences=1)
    _append(cache, 0, 2)
    cells = cache.reserve(Rows.tree(0, [5, 6, 7, 8], [-1, 0, 0, 2], position=2))
    assert cache.n_free == 10
    cache.commit(0, [0, 2, 3])
    assert cache.cells(0).tolist() == [0, 1, *cells[[0, 2, 3]]]
    assert cache.n_free == 11
    cache.check_integrity()


def test_rows_that_nobody_commits_are_gone_with_the_next_reservation() -> None:
    cache = Cache(n_cells=8, n_sequences=2)
    both = Rows.concatenate([Rows.chain(0, [1, 2], 0), Rows.chain(1, [3], 0)])
    cache.reserve(both)
    cache.commit(1, [2])
    assert cache.reserve(Rows.chain(0, [9], 0)).tolist() == [0]
    cache.check_integrity()
    assert (cache.length(0), cache.length(1), cache.n_free) == (0, 1, 6)


def test_committing_one_sequence_leaves_the_other_pending() -> None:
    cache = Cache(n_cells=8, n_sequences=2)
    cache.reserve(Rows.concatenate([Rows.chain(0, [1, 2], 0), Rows.chain(1, [3, 4], 0)]))
    cache.commit(1, [2])
    cache.check_integrity()
    cache.commit(0, [0, 1])
    assert (cache.length(0), cache.length(1), cache.n_free) == (2, 1, 5)
    with pytest.raises(AssertionError, match="pending"):
        cache.commit(0, [0])


def test_rows_of_another_sequence_cannot_be_committed() -> None:
    cache = Cache(n_cells=8, n_sequences=2)
    cache.reserve(Rows.concatenate([Rows.chain(0, [1], 0), Rows.chain(1, [2], 0)]))
    with pytest.raises(AssertionError, match="another sequence"):
        cache.commit(0, [1])


def test_a_fork_shares_cells_until_both_let_go() -> None:
    cache = Cache(n_cells=8, n_sequences=3)
    _append(cache, 0, 5)
    cache.fork(0, 2)
    assert cache.n_free == 3
    _append(cache, 2, 1)
    cache.release(0)
    assert (cache.length(2), cache.n_free) == (6, 2)
    cache.truncate(2, 3)
    cache.check_integrity()
    assert cache.n_free == 5
    cache.release(2)
    assert cache.n_free == 8


def test_a_snapshot_outlives_its_sequence() -> None:
    cache = Cache(n_cells=8, n_sequences=2)
    cells = _append(cache, 0, 4)
    snapshot = cache.snapshot(0)
    cache.truncate(0, 2)
    _append(cache, 0, 1)
    cache.release(0)
    assert cache.n_free == 4
    cache.restore(1, snapshot)
    cache.discard(snapshot)
    assert cache.cells(1).tolist() == cells
    cache.check_integrity()
    with pytest.raises(AssertionError, match="discarded"):
        cache.restore(0, snapshot)


def test_running_out_changes_nothing() -> None:
    cache = Cache(n_cells=4, n_sequences=1)
    _append(cache, 0, 3)
    with pytest.raises(OutOfCellsError, match=r"1 of 4 cells free, 2 are needed.*ctx-size"):
        cache.reserve(Rows.chain(0, [1, 2], 3))
    cache.check_integrity()
    assert (cache.length(0), cache.n_free) == (3, 1)
    _append(cache, 0, 1)


def test_release_takes_pending_rows_along() -> None:
    cache = Cache(n_cells=4, n_sequences=2)
    cache.reserve(Rows.concatenate([Rows.chain(0, [1, 2], 0), Rows.chain(1, [3], 0)]))
    cache.release(0)
    cache.check_integrity()
    assert cache.n_free == 3
    cache.commit(1, [2])
    assert cache.length(1) == 1


def test_masks_show_exactly_the_sequence() -> None:
    cache = Cache(n_cells=6, n_sequences=2)
    _append(cache, 0, 2)
    _append(cache, 1, 2)
    cache.truncate(0, 1)
    expected = [VISIBLE, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN]
    assert cache.mask(0).tolist() == expected
    assert np.float16(0.0).view(np.uint16) == VISIBLE
    assert np.float16(-np.inf).view(np.uint16) == HIDDEN


N_CELLS, N_SEQUENCES = 24, 3


class CacheMachine(RuleBasedStateMachine):
    """Random operations against lists of tokens; a cell holds what was written when it was reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(N_CELLS, N_SEQUENCES)
        self.written = [-1] * N_CELLS
        self.expected: list[list[int]] = [[] for _ in range(N_SEQUENCES)]
        self.snapshots: list[tuple[Snapshot, list[int]]] = []
        self.next_token = 0

    @rule(sequence=st.integers(0, N_SEQUENCES - 1), n=st.integers(1, 6), data=st.data())
    def forward(self, sequence: int, n: int, data: st.DataObject) -> None:
        tokens = list(range(self.next_token, self.next_token + n))
        self.next_token += n
        rows = Rows.tree(sequence, tokens, [-1] * n, len(self.expected[sequence]))
        free = self.cache.n_free
        try:
            cells = self.cache.reserve(rows)
        except OutOfCellsError:
            assert free < n
            return
        for cell, token in zip(cells.tolist(), tokens, strict=True):
            self.written[cell] = token
        kept = data.draw(st.lists(st.integers(0, n - 1), unique=True))
        self.cache.commit(sequence, kept)
        self.expected[sequence] += [tokens[i] for i in kept]

    @rule(sequence=st.integers(0, N_SEQUENCES - 1), data=st.data())
    def truncate(self, sequence: int, data: st.DataObject) -> None:
        n = data.draw(st.integers(0, len(self.expected[sequence])))
        self.cache.truncate(sequence, n)
        del self.expected[sequence][n:]

    @rule(source=st.integers(0, N_SEQUENCES - 1), step=st.integers(1, N_SEQUENCES - 1))
    def fork(self, source: int, step: int) -> None:
        target = (source + step) % N_SEQUENCES
        self.cache.release(target)
        self.cache.fork(source, target)
        self.expected[target] = list(self.expected[source])

    @rule(sequence=st.integers(0, N_SEQUENCES - 1))
    def snapshot(self, sequence: int) -> None:
        self.snapshots.append((self.cache.snapshot(sequence), list(self.expected[sequence])))

    @precondition(lambda self: self.snapshots)
    @rule(sequence=st.integers(0, N_SEQUENCES - 1), data=st.data())
    def restore(self, sequence: int, data: st.DataObject) -> None:
        snapshot, tokens = data.draw(st.sampled_from(self.snapshots))
        self.cache.restore(sequence, snapshot)
        self.expected[sequence] = list(tokens)

    @precondition(lambda self: self.snapshots)
    @rule()
    def discard(self) -> None:
        self.cache.discard(self.snapshots.pop()[0])

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        self.cache.check_integrity()
        for sequence, tokens in enumerate(self.expected):
            assert [self.written[cell] for cell in self.cache.cells(sequence)] == tokens


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
