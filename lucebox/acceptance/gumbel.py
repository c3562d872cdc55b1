"""Both sides draw with the same noise (Daliri, Musco & Suresh 2024, arXiv 2408.07978)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, follow
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.gumbel import gumbel_argmax
from lucebox.sampling.random import RoundRandom


class Gumbel(AcceptanceStrategy):
    """Accepts a token iff the target's argmax of log p plus noise, keyed by (seed, position, token), is it.

    Lossless, and the text does not depend on the draft: what is emitted is the target's own draw, always.
    Against a draft drawn with the same noise P(accept) = sum over x of 1/sum over y of max(p_y/p_x, q_y/q_x)
    >= (1 - TV)/(1 + TV); nothing but the drafted ids need reach the target.
    """

    lossless = True
    needs_q = False
    supports_trees = True
    draw_mode = DrawMode.SHARED_NOISE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def draw(row: int, depth: int) -> int:
            return gumbel_argmax(p_rows[row], random.seed, random.position + depth)

        return follow(draft, draw)


Plugin = Gumbel
