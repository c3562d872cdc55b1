"""What one forward computes: rows of several sequences, as a structure of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from lucebox.core import Int32Array


class Want(IntEnum):
    """What is asked of a row beyond writing its key and value."""

    NOTHING = 0
    LOGITS = 1
    ARGMAX = 2
    HIDDEN = 3  # beside the logits
    STATE = 4  # the hidden state, and no logits where no row of the batch wants some


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A batch of rows; every array is int32[n_rows].

    `parents[i]` is the row of this batch that row i follows, always an earlier one of the same
    sequence, or -1 when it follows the committed cells of its sequence. A row attends to the committed
    cells, its ancestors and itself, so a chain is 0, 1, 2, ... behind a -1, and siblings share a
    parent. `wants` holds `Want` values.
    """

    tokens: Int32Array
    positions: Int32Array
    sequences: Int32Array
    parents: Int32Array
    wants: Int32Array

    def __len__(self) -> int:
        return len(self.tokens)

    def distinct_sequences(self) -> set[int]:
        """The sequences that have rows in this batch."""
        return {int(self.sequences[0])} if len(self.tokens) == 1 else set(self.sequences.tolist())

    @classmethod
    def chain(
        cls,
        sequence: int,
        tokens: Sequence[int] | Int32Array,
        position: int,
        *,
        want_last: Want = Want.LOGITS,
        want_all: Want | None = None,
    ) -> Rows:
        """`tokens` one after another from `position` on, behind the committed cells of `sequence`.

        `want_all`, when given, is wanted of every row; otherwise `want_last` of the last and nothing of
        the rest.
        """
        n = len(tokens)
        if n == 1:  # one step of plain decoding: nothing to spread
            want = want_last if want_all is None else want_all
            fields = (tokens[0], position, sequence, -1, want)
            return cls(*(np.array((value,), np.int32) for value in fields))
        wants = np.full(n, Want.NOTHING if want_all is None else want_all, np.int32)
        if want_all is None and n:
            wants[-1] = want_last
        return cls(
            np.asarray(tokens, np.int32),
            np.arange(position, position + n, dtype=np.int32),
            np.full(n, sequence, np.int32),
            np.arange(-1, n - 1, dtype=np.int32),
            wants,
        )

    @classmethod
    def tree(
        cls,
        sequence: int,
        tokens: Sequence[int] | Int32Array,
        parents: Sequence[int] | Int32Array,
        position: int,
        *,
        want_all: Want = Want.LOGITS,
    ) -> Rows:
        """A tree whose rows with parent -1 stand at `position`; each other row stands one behind its
        parent."""
        n = len(tokens)
        parent_array = np.asarray(parents, np.int32)
        positions = np.empty(n, np.int32)
        for i, parent in enumerate(parent_array.tolist()):
            assert -1 <= parent < i, "a row's parent comes before it"
            positions[i] = position if parent < 0 else positions[parent] + 1
        return cls(
            np.asarray(tokens, np.int32),
            positions,
            np.full(n, sequence, np.int32),
            parent_array,
            np.full(n, want_all, np.int32),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """One batch of several; parents are shifted so that each part keeps its own tree."""
        if len(parts) == 1:
            return parts[0]
        parents, n_rows = [], 0
        for part in parts:
            parents.append(np.where(part.parents < 0, np.int32(-1), part.parents + np.int32(n_rows)))
            n_rows += len(part)
        return cls(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.sequences for part in parts]),
            np.concatenate(parents).astype(np.int32, copy=False),
            np.concatenate([part.wants for part in parts]),
        )
