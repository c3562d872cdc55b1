"""One sequence's part of a step: the rows it computes, and the laws they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import overload

import numpy as np

from lucebox.acceptance.base import TargetRows
from lucebox.core import Distribution, Draft, Float32Array, Verdict
from lucebox.engine.scheduler import Feed
from lucebox.engine.sequence import Emission, EngineSequence, rows_behind
from lucebox.engine.timeline import Span
from lucebox.engine.timings import RoundTrace, Work
from lucebox.errors import RequestError
from lucebox.runtime.rows import Rows, Want


class LawRows(TargetRows):
    """The target's laws behind each row of a draft, computed when asked for.

    Behind a drafted token there may be no law: no token may follow it. Plain decoding would fail there, if it
    came there; a draft ends. Strategies see a law that is sure of one token which was not drafted, so that
    they accept nothing more, and `ended` takes that token away: what is left follows the target's law.
    """

    def __init__(self, sequence: EngineSequence, draft: Draft, logits: Sequence[Float32Array]) -> None:
        self._sequence = sequence
        self._draft = draft
        self._logits = logits
        self._laws: dict[int, Distribution] = {}
        self._dead_ends: set[int] = set()

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
            self._laws[row] = self._law(row)
        return self._laws[row]

    @property
    def is_collapsed(self) -> bool:
        return self._sequence.sampler.params.greedy

    def uncollapsed(self, row: int) -> Distribution:
        return self._law(row, uncollapsed=True) if self.is_collapsed else self[row]

    def ended(self, verdict: Verdict) -> Verdict:
        """`verdict`, without what follows an accepted token that nothing may follow: it is the last one."""
        for n, i in enumerate(verdict.path):
            if i + 1 in self._dead_ends:
                return Verdict(verdict.path[:n], int(self._draft.tokens[i]), int(self._draft.parents[i]))
        return verdict

    def _law(self, row: int, *, uncollapsed: bool = False) -> Distribution:
        """Raises RequestError where no token may follow what was committed."""
        sampler, behind = self._sequence.sampler, rows_behind(self._draft, row)
        try:
            return sampler.law(self._logits[row], behind, uncollapsed=uncollapsed)
        except RequestError:
            if row == 0:
                raise
        self._dead_ends.add(row)
        children = self._draft.tokens[self._draft.parents == row]
        return Distribution.one_hot(sampler.n_vocab, next(i for i in count() if i not in children))


@dataclass(slots=True)
class Round:
    """One sequence's part of a step. `first_row` is where its rows begin in the batch; the times are the
    batch's, and `work` is what was computed in it. At most `n_planned` tokens were asked for; `laws` are
    those that were shown to the controller, by depth, where somebody will guess on behind them, and
    `n_hidden` of them were known before."""

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
    work: Sequence[Span] = ()
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

    def check(self, verdict: Verdict) -> None:
        """Raises ValueError for what could not be committed, or fed next: a bug of the strategy."""
        who = f"the acceptance strategy {type(self.sequence.acceptance).__name__}"
        if not isinstance(verdict, Verdict):
            raise ValueError(f"{who} returned {type(verdict).__name__}, not a Verdict")
        row = 0
        for i in verdict.path:
            if not 0 <= i < len(self.draft) or self.draft.parents[i] != row:
                raise ValueError(f"{who}: {verdict.path} is no path of a draft of {len(self.draft)} tokens")
            row = i + 1
        n_vocab = self.sequence.sampler.n_vocab
        if verdict.row != row or not 0 <= verdict.token < n_vocab:
            raise ValueError(
                f"{who}: token {verdict.token} at row {verdict.row}, behind row {row} of the draft"
            )

    def trace(self, emission: Emission, index: int, time_ms: float) -> RoundTrace:
        """What became of it, for a client that wants to see every round."""
        work = [Work(s.party, 1000.0 * s.start_s, 1000.0 * s.end_s, s.is_ahead) for s in self.work]
        n_tokens = len(emission.tokens)
        return RoundTrace(index, n_tokens, emission.drafted, self.draft_ms, self.verify_ms, time_ms, work)

    def rows(self) -> Rows:
        """The missing tokens that are fed, and the draft behind them."""
        sequence, n = self.sequence, self.feed.n_rows
        known = sequence.tokens[sequence.n_cached : sequence.n_cached + n]
        if sequence.pooler is not None:
            return sequence.pooler.rows(sequence.slot, known)
        if sequence.scores is not None and not sequence.scores.is_done:
            return Rows.chain(sequence.slot, known, sequence.n_cached, want_all=Want.LOGITS)
        if not self.feed.draws:
            return Rows.chain(sequence.slot, known, sequence.n_cached, want_last=Want.NOTHING)
        chain = Rows.chain(sequence.slot, known, sequence.n_cached)
        if not len(self.draft):
            return chain
        parents = np.concatenate([chain.parents, self.draft.parents + np.int32(n - 1)])
        rows = Rows.tree(sequence.slot, [*known, *self.draft.tokens.tolist()], parents, sequence.n_cached)
        rows.wants[: n - 1] = Want.NOTHING
        return rows
