"""Rejection sampling with lenience (Leviathan, Kalman & Matias 2023, arXiv 2211.17192, appendix)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, arrays, is_collapsed, judge_chain, uncollapsed
from lucebox.acceptance.kernels import verify
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling.random import Purpose, RoundRandom


class Lenient(AcceptanceStrategy):
    """Accepts x drawn from q with probability min(1, p(x)/(l*q(x))), l = `leniency` in (0, 1].

    On rejection it draws from max(p - q, 0). Not lossless, but no token's probability exceeds p/l, and l = 1
    is `token`. At temperature 0 it accepts x iff p(x) >= l * max p, p being the law at temperature 1.
    """

    lossless = False
    needs_q = True
    draw_mode = DrawMode.SAMPLE

    def __init__(self, *, leniency: float = 0.5) -> None:
        if not 0.0 < leniency <= 1.0:
            raise ConfigError(f"lenient: leniency must be in (0, 1], not {leniency:g}")
        self.leniency = leniency

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def accepts(row: int, token: int) -> bool:
            if is_collapsed(p_rows):
                return is_near_best(uncollapsed(p_rows, row), token, self.leniency)
            p, u = p_rows[row], random.uniform(row, Purpose.ACCEPT)
            return verify.accepts(p.ids, p.probs, *arrays(draft.q[row]), token, u * self.leniency)

        def correction(row: int, token: int) -> int:
            p, u = p_rows[row], random.uniform(row, Purpose.RESIDUAL)
            return verify.residual_sample(p.ids, p.probs, *arrays(draft.q[row]), token, u)

        return judge_chain(draft, p_rows, random, accepts, correction)


def is_near_best(p: Distribution, token: int, leniency: float) -> bool:
    """Whether `token` is at least `leniency` times as likely as the likeliest one."""
    return p.prob(token) >= leniency * float(p.probs.max())


Plugin = Lenient
