"""The contract of an acceptance strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from lucebox.core import Distribution, Draft, DrawMode, Float32Array, Int32Array, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom


class TargetRows(Sequence[Distribution]):
    """The target's laws behind the rows of a draft, as the engine has them: each computed when asked for.

    At temperature 0 they are one-hot, and say nothing of how close a second token came. A strategy that may
    leave the target's law needs the ones behind them.
    """

    @property
    @abstractmethod
    def is_collapsed(self) -> bool:
        """Whether the request's temperature is 0."""

    @abstractmethod
    def uncollapsed(self, row: int) -> Distribution:
        """The law at temperature 1 where the request's is 0; else the row itself."""


def is_collapsed(p_rows: Sequence[Distribution]) -> bool:
    """Whether these rows are known to be the one-hot limits of other laws."""
    return isinstance(p_rows, TargetRows) and p_rows.is_collapsed


def uncollapsed(p_rows: Sequence[Distribution], row: int) -> Distribution:
    """`p_rows[row]` before temperature 0 made it one-hot; plain lists hold what they hold."""
    return p_rows.uncollapsed(row) if isinstance(p_rows, TargetRows) else p_rows[row]


class AcceptanceStrategy(ABC):
    """Decides which drafted tokens stand. Touches no cache and no sequence, keeps no state between rounds.

    A strategy is one file in `lucebox/acceptance/` whose module name is its name, exporting its class as
    `Plugin`.

    `lossless` says that the emitted tokens follow the target's law whatever is drafted, in every request that
    the strategy may judge; `temperature_0_only` that it may judge no other, so that those are refused.
    `needs_q` says that it reads the laws of the draft. It is given trees only if it `supports_trees`, and
    drafts whose tokens were picked as `draw_mode` says.
    """

    lossless: ClassVar[bool]
    needs_q: ClassVar[bool]
    supports_trees: ClassVar[bool] = False
    temperature_0_only: ClassVar[bool] = False
    draw_mode: ClassVar[DrawMode]

    @abstractmethod
    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        """Judges `draft`.

        `p_rows[r]` is the target's law after row r (row 0: the last committed token; row i+1: draft token
        i), with the request's whole chain applied; a row is computed when it is asked for, so ask only for
        what is needed. An empty draft is plain decoding: the verdict is a draw from `p_rows[0]`.
        """


def follow(draft: Draft, choose: Callable[[int, int], int]) -> Verdict:
    """Walks down the tree as long as a child holds the target's own token, `choose(row, depth)`.

    Asks `choose` once for each row on the accepted path, and for no other.
    """
    if not len(draft):  # plain decoding, the most frequent round
        return Verdict((), choose(0, 0), 0)
    children = {(row, token): i for i, (row, token) in reversed([*enumerate(_edges(draft))])}
    path: list[int] = []
    row = 0
    while True:
        token = choose(row, len(path))
        child = children.get((row, token))
        if child is None:
            return Verdict(tuple(path), token, row)
        path.append(child)
        row = child + 1


def judge_chain(
    draft: Draft,
    p_rows: Sequence[Distribution],
    random: RoundRandom,
    accepts: Callable[[int, int], bool],
    correction: Callable[[int, int], int],
) -> Verdict:
    """Goes along a chain up to the first token that `accepts(row, token)` refuses, and emits
    `correction(row, token)` in its place; behind a draft that stands as a whole, a draw from its last row.
    """
    assert draft.is_chain, "this strategy judges chains only"
    for row, token in enumerate(draft.tokens.tolist()):
        if not accepts(row, token):
            return Verdict(tuple(range(row)), correction(row, token), row)
    return bonus(draft, p_rows, random)


def bonus(draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
    """The whole chain stands, and the target's own draw follows it. Plain decoding, if it is empty."""
    n = len(draft)
    u = random.uniform(n, Purpose.BONUS if n else Purpose.PLAIN)
    return Verdict(tuple(range(n)), sample(p_rows[n], u), n)


def arrays(law: Distribution | None) -> tuple[Int32Array | None, Float32Array | None]:
    """A draft's law as kernels take it: one-hot at the drafted token where there is none."""
    return (None, None) if law is None else (law.ids, law.probs)


def _edges(draft: Draft) -> list[tuple[int, int]]:
    return list(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True))
