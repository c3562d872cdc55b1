"""Mentored decoding (Tran-Thien 2023, "An optimal lossy variant of speculative decoding")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from lucebox.acceptance.base import AcceptanceStrategy, arrays, is_collapsed, judge_chain, uncollapsed
from lucebox.acceptance.kernels import divergence, verify
from lucebox.acceptance.lenient import is_near_best
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling.random import Purpose, RoundRandom


class Mentored(AcceptanceStrategy):
    """Accepts as much as a law pi allows that lies within KL(p || pi) <= `divergence` nats of the target's.

    pi is p/l where q > p/l, p/b where q < p/b, and q between: b makes it sum to one, and l is the least that
    keeps the bound. Then as `token`, with pi in place of p: x stands with probability min(1, p/(l*q)), and
    what is left is max(p/b - q, 0). Behind a whole draft follows a draw from p. Not lossless; a bound of 0 is
    `token`. At temperature 0 x stands iff p(x) >= l * max p, for p at temperature 1 and q certain of x.
    """

    lossless = False
    needs_q = True
    draw_mode = DrawMode.SAMPLE

    def __init__(self, *, divergence: float = 0.05) -> None:
        if not (divergence >= 0.0 and math.isfinite(divergence)):
            raise ConfigError(f"mentored: divergence must be 0 or more, and finite, not {divergence:g}")
        self.divergence = divergence

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        @cache
        def mentor(row: int, token: int) -> tuple[float, float]:
            """(l, b) of a row."""
            p = uncollapsed(p_rows, row)
            q = None if is_collapsed(p_rows) else draft.q[row]
            leniency, b = divergence.mentor(p.ids, p.probs, *arrays(q), token, self.divergence)
            return leniency, b

        def accepts(row: int, token: int) -> bool:
            leniency, _ = mentor(row, token)
            if is_collapsed(p_rows):
                return is_near_best(uncollapsed(p_rows, row), token, leniency)
            p, u = p_rows[row], random.uniform(row, Purpose.ACCEPT)
            return verify.accepts(p.ids, p.probs, *arrays(draft.q[row]), token, u * leniency)

        def correction(row: int, token: int) -> int:
            p, u = p_rows[row], random.uniform(row, Purpose.RESIDUAL)
            _, b = mentor(row, token)
            return verify.residual_sample(p.ids, p.probs, *arrays(draft.q[row]), token, u, 1.0 / b)

        return judge_chain(draft, p_rows, random, accepts, correction)


Plugin = Mentored
