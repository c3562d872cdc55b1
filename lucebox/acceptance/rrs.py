"""Recursive rejection sampling without replacement (Jeon et al. 2024, arXiv 2402.14160; Sequoia, Chen et al.
2024, arXiv 2402.12374)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.acceptance.tree import descend, one_by_one
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom


class RecursiveRejection(AcceptanceStrategy):
    """`specinfer` over candidates that differ: each is drawn from q without the ones before it.

    Lossless. Where q runs out of tokens there are fewer candidates, and what is left of p is sampled.
    """

    lossless = True
    needs_q = True
    supports_trees = True
    draw_mode = DrawMode.WITHOUT_REPLACEMENT

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        return descend(draft, p_rows, random, one_by_one(random))


Plugin = RecursiveRejection
