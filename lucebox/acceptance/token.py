"""Rejection sampling token by token (Leviathan, Kalman & Matias 2023, arXiv 2211.17192; Chen et al. 2023,
arXiv 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.acceptance.kernels import verify
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.draw import sample
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
        assert draft.is_chain, "`token` judges chains only"
        for row, token in enumerate(draft.tokens.tolist()):
            p, q = p_rows[row], draft.q[row]
            q_ids, q_probs = (None, None) if q is None else (q.ids, q.probs)
            u = random.uniform(row, Purpose.ACCEPT)
            if not verify.accepts(p.ids, p.probs, q_ids, q_probs, token, u):
                u = random.uniform(row, Purpose.RESIDUAL)
                emitted = verify.residual_sample(p.ids, p.probs, q_ids, q_probs, token, u)
                return Verdict(tuple(range(row)), emitted, row)
        n = len(draft)
        u = random.uniform(n, Purpose.BONUS if n else Purpose.PLAIN)
        return Verdict(tuple(range(n)), sample(p_rows[n], u), n)


Plugin = Token
