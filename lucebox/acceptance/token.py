"""Rejection sampling token by token (Leviathan, Kalman & Matias 2023, arXiv 2211.17192; Chen et al. 2023,
arXiv 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, arrays, judge_chain
from lucebox.acceptance.kernels import verify
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import Purpose, RoundRandom


class Token(AcceptanceStrategy):
    """Accepts x drawn from q with probability min(1, p(x)/q(x)), and draws from max(p - q, 0) on rejection.

    Lossless. P(accept) = 1 - TV(p, q). Chains only. A deterministic proposal (q None) is one-hot.
    """

    lossless = True
    needs_q = True
    supports_trees = False
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def accepts(row: int, token: int) -> bool:
            p, u = p_rows[row], random.uniform(row, Purpose.ACCEPT)
            return verify.accepts(p.ids, p.probs, *arrays(draft.q[row]), token, u)

        def correction(row: int, token: int) -> int:
            p, u = p_rows[row], random.uniform(row, Purpose.RESIDUAL)
            return verify.residual_sample(p.ids, p.probs, *arrays(draft.q[row]), token, u)

        return judge_chain(draft, p_rows, random, accepts, correction)


Plugin = Token
