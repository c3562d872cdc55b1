"""Multi-step speculative sampling over independent candidates (Miao et al. 2023, arXiv 2305.09781)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.acceptance.tree import descend, one_by_one
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom


class SpecInfer(AcceptanceStrategy):
    """Judges the candidates of a place one after another, each by min(1, p/q), p shrinking to
    norm(max(p - q, 0)) with each that falls; emits a draw of what is left behind the last one.

    Lossless. Candidates are independent draws from one q, in draw order; equal ones are judged each, for
    dropping them would bias the text. A chain is judged as by `token`.
    """

    lossless = True
    needs_q = True
    supports_trees = True
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        return descend(draft, p_rows, random, one_by_one(random))


Plugin = SpecInfer
