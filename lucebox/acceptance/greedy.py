"""Accepts a drafted token iff it is the target's likeliest: the limit of lossless rules at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, follow
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom


class Greedy(AcceptanceStrategy):
    """Emits the argmax of every row, the lowest id among ties: lossless at temperature 0."""

    lossless = True
    needs_q = False
    supports_trees = True
    temperature_0_only = True
    draw_mode = DrawMode.ARGMAX

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        return follow(draft, lambda row, depth: p_rows[row].argmax())


Plugin = Greedy
