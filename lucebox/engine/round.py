"""One sequence's part of a step: the rows it computes, and the laws they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from lucebox.acceptance.base import TargetRows
from lucebox.core import Distribution, Draft, Float32Array
from lucebox.engine.scheduler import Feed
from lucebox.engine.sequence import EngineSequence, rows_behind
from lucebox.runtime.rows import Rows, Want


class LawRows(TargetRows):
    """The target's laws behind each row of a draft, computed when asked for."""

    def __init__(self, sequence: EngineSequence, draft: Draft, logits: Sequence[Float32Array]) -> None:
        self._sequence = sequence
        self._draft = draft
        self._logits = logits
        self._laws: dict[int, Distribution] = {}

    def __len__(self) -> int:
        return len(self._draft) + 1

    @overload
    def __getitem__(self, row: int) -> Distribution: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Distribution]: ...
    def __getitem__(self, row: int | slice) -> Distribution | Sequence[Distribution]:
        if isinstance(row, slice):
            return [self[r] for r in range(*row.indices(len(self)))]
        if not 0 <= row < len(self):
            raise IndexError(row)
        if row not in self._laws:
            behind = rows_behind(self._draft, row)
            self._laws[row] = self._sequence.sampler.law(self._logits[row], behind)
        return self._laws[row]

    @property
    def is_collapsed(self) -> bool:
        return self._sequence.sampler.params.greedy

    def uncollapsed(self, row: int) -> Distribution:
        if not self.is_collapsed:
            return self[row]
        behind = rows_behind(self._draft, row)
        return self._sequence.sampler.law(self._logits[row], behind, uncollapsed=True)


@dataclass(slots=True)
class Round:
    """One sequence's part of a step. `first_row` is where its rows begin in the batch; the times are the
    batch's. At most `n_planned` tokens were asked for; `laws` are those that were shown to the controller, by
    depth, where somebody will guess on behind them, and `n_hidden` of them were known before."""

    feed: Feed
    draft: Draft = field(default_factory=Draft.empty)
    drafter: str = ""
    draft_ms: float = 0.0
    n_caught_up: int = 0
    n_judged: int = 0
    n_planned: int = 0
    n_hidden: int = 0
    laws: dict[int, Distribution] = field(default_factory=dict)
    n_draft_sequences: int = 1
    verify_ms: float = 0.0
    first_row: int = 0

    @property
    def sequence(self) -> EngineSequence:
        return self.feed.sequence

    @property
    def n_rows(self) -> int:
        return self.feed.n_rows + len(self.draft)

    @property
    def row_0(self) -> int:
        """The row of the last token of the sequence: row 0 of its draft."""
        return self.first_row + self.feed.n_rows - 1

    def rows(self) -> Rows:
        """The missing tokens that are fed, and the draft behind them."""
        sequence, n = self.sequence, self.feed.n_rows
        known = sequence.tokens[sequence.n_cached : sequence.n_cached + n]
        if not self.feed.draws:
            return Rows.chain(sequence.slot, known, sequence.n_cached, want_last=Want.NOTHING)
        chain = Rows.chain(sequence.slot, known, sequence.n_cached)
        if not len(self.draft):
            return chain
        parents = np.concatenate([chain.parents, self.draft.parents + np.int32(n - 1)])
        rows = Rows.tree(sequence.slot, [*known, *self.draft.tokens.tolist()], parents, sequence.n_cached)
        rows.wants[: n - 1] = Want.NOTHING
        return rows
