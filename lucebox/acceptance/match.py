"""Draws the target's own token and accepts a drafted one iff it is the same."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, follow
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom


class Match(AcceptanceStrategy):
    """Sample and match. Lossless, and the text does not depend on the draft.

    A token's draw is keyed by (seed, index of the token in the sequence), so that a seeded request says the
    same with any draft length, or none. An argmax draft is accepted with probability p(x).
    """

    lossless = True
    needs_q = False
    supports_trees = True
    draw_mode = DrawMode.ARGMAX

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def draw(row: int, depth: int) -> int:
            return sample(p_rows[row], random.at_position(random.position + depth, Purpose.TARGET))

        return follow(draft, draw)


Plugin = Match
