"""A cache that is repeated elsewhere: whatever is done to it, both hold the same cells."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from lucebox.engine.draft_messages import Forward, apply, pack_rows, unpack_rows
from lucebox.engine.mirrored_cache import MirroredCache
from lucebox.errors import OutOfCellsError
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows, Want

N_CELLS = 20
N_SEQUENCES = 4


def crossed(forward: Forward) -> Forward:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(forward), type=Forward)


def random_rows(cache: Cache, rng: random.Random) -> Rows:
    sequences = rng.sample(range(N_SEQUENCES), rng.randint(1, N_SEQUENCES))
    return Rows.concatenate(
        [Rows.chain(sequence, [1] * rng.randint(1, 6), cache.length(sequence)) for sequence in sequences]
    )


def change(cache: MirroredCache, rows: Rows | None, rng: random.Random) -> None:
    """One random operation that is allowed."""
    sequence, other = rng.sample(range(N_SEQUENCES), 2)
    match rng.randrange(6):
        case 0:
            cache.truncate(sequence, rng.randint(0, cache.length(sequence)))
        case 1:
            cache.release(sequence)
        case 2:
            cache.release(other)
            cache.fork(sequence, other)
        case 3:
            cache.drop_pending()
        case _:
            pending = cache._pending
            if rows is None or pending is None or not pending.open_sequences:
                return
            sequence = rng.choice(sorted(pending.open_sequences))
            own = np.flatnonzero(rows.sequences == sequence).tolist()
            cache.commit(sequence, own[: rng.randint(0, len(own))])


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_hold_the_same(seed: int) -> None:
    rng = random.Random(seed)
    ours, theirs = MirroredCache(N_CELLS, N_SEQUENCES), Cache(N_CELLS, N_SEQUENCES)
    n_refused = 0
    for _ in range(200):
        rows = random_rows(ours, rng)
        reserves = rng.random() < 0.2  # as calibration does, without a forward
        try:
            cells = ours.reserve(rows) if reserves else ours.reserve_for_forward(rows)
        except OutOfCellsError:
            n_refused += 1
            ours.release(rng.randrange(N_SEQUENCES))
            continue
        if not reserves:
            forward = crossed(Forward(ours.take_operations(), pack_rows(rows)))
            for operation in forward.operations:
                apply(operation, theirs)
            assert np.array_equal(theirs.reserve(unpack_rows(forward.rows)), cells)
            for sequence in range(N_SEQUENCES):
                assert np.array_equal(ours.cells(sequence), theirs.cells(sequence))
            assert ours.n_free == theirs.n_free
        for _ in range(rng.randint(0, 4)):
            change(ours, rows, rng)
        ours.check_integrity()
        theirs.check_integrity()
    assert n_refused > 0


def test_plain_decoding_says_one_thing_per_token() -> None:
    cache = MirroredCache(N_CELLS, N_SEQUENCES)
    for i in range(10):
        cache.reserve_for_forward(Rows.chain(0, [1], i))
        assert len(cache.take_operations()) == min(i, 1)
        cache.commit(0, [0])


def test_rows_cross_as_they_are() -> None:
    rows = Rows.tree(3, [5, 6, 7], [-1, 0, 0], 9, want_all=Want.HIDDEN)
    there = unpack_rows(pack_rows(rows))
    for field in ("tokens", "positions", "sequences", "parents", "wants"):
        assert np.array_equal(getattr(there, field), getattr(rows, field))
        assert getattr(there, field).dtype == np.int32
