"""What crosses between an engine and the process of its draft model."""

from __future__ import annotations

import msgspec
import numpy as np

from lucebox.config import ModelConfig
from lucebox.core import Int32Array
from lucebox.engine.messages import Failed, Loading
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows

_N_FIELDS = 5


class DraftConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the process needs to start: what Runtime.load is given, and the workers that it connects to,
    each with the number of its first device."""

    model: ModelConfig
    n_ctx: int
    n_sequences: int
    n_spare_sequences: int = 0
    workers: tuple[tuple[str, int], ...] = ()


class Commit(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Each of these names a method of Cache, and holds its arguments."""

    sequence: int
    rows: list[int]


class Truncate(msgspec.Struct, tag=1, array_like=True, frozen=True):
    sequence: int
    n_tokens: int


class Fork(msgspec.Struct, tag=2, array_like=True, frozen=True):
    source: int
    target: int


class Release(msgspec.Struct, tag=3, array_like=True, frozen=True):
    sequence: int


class Reserve(msgspec.Struct, tag=4, array_like=True, frozen=True):
    rows: bytes


class DropPending(msgspec.Struct, tag=5, array_like=True, frozen=True):
    pass


CacheOperation = Commit | Truncate | Fork | Release | Reserve | DropPending


class Forward(msgspec.Struct, frozen=True):
    """What was done to the cache since the last forward, in order, and the rows to be computed now."""

    operations: list[CacheOperation]
    rows: bytes


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The model can be asked from now on."""

    n_cells: int


class Computed(msgspec.Struct, tag="computed", frozen=True):
    """The results of a forward lie in shared memory: rows of logits, then of hidden states (0 wide: none).

    `n_free` cells are free: both sides count the same.
    """

    n_free: int
    n_columns: int
    n_hidden: int = 0


DraftEvent = Loading | Loaded | Computed | Failed


def pack_rows(rows: Rows) -> bytes:
    """`rows` as int32[5, n_rows] in the order of its fields, in this machine's byte order."""
    return np.stack((rows.tokens, rows.positions, rows.sequences, rows.parents, rows.wants)).tobytes()


def unpack_rows(data: bytes) -> Rows:
    """What `pack_rows` packed."""
    fields: Int32Array = np.frombuffer(data, np.int32).reshape(_N_FIELDS, -1)
    return Rows(*fields)


def apply(operation: CacheOperation, cache: Cache) -> None:
    """Does to `cache` what was done to another."""
    match operation:
        case Commit():
            cache.commit(operation.sequence, operation.rows)
        case Truncate():
            cache.truncate(operation.sequence, operation.n_tokens)
        case Fork():
            cache.fork(operation.source, operation.target)
        case Release():
            cache.release(operation.sequence)
        case Reserve():
            cache.reserve(unpack_rows(operation.rows))
        case DropPending():
            cache.drop_pending()
