"""The contract of an acceptance strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom


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


def _edges(draft: Draft) -> list[tuple[int, int]]:
    return list(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True))
