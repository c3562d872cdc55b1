"""Block verification (Sun et al. 2025, arXiv 2403.10444): a draft is judged as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, arrays, bonus
from lucebox.acceptance.kernels import verify
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import Purpose, RoundRandom


class Block(AcceptanceStrategy):
    """Keeps the longest prefix that any of the draws allows, so that a good token makes up for a bad one.

    With a(0) = 1 and a(i) = min(1, a(i-1) * p(x_i)/q(x_i)), the first i of n tokens are allowed with
    probability h(i) = Z/(Z + 1 - a(i)), where Z sums max(a(i)*p - q, 0) over the row behind them, and
    h(n) = a(n). Behind i < n of them follows a draw from max(a(i)*p - q, 0), behind all of them one from p.

    Lossless, for any length that was really drafted, and never accepts fewer tokens than `token` on average.
    Chains only. a(i) is kept as a logarithm: a run of unlikely tokens must not underflow before a likely one.
    """

    lossless = True
    needs_q = True
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        assert draft.is_chain, "`block` judges chains only"
        n = len(draft)
        log_a = self._log_a(draft, p_rows)
        n_accepted = len(log_a) - 1
        while n_accepted:
            scale = math.exp(log_a[n_accepted])
            allowed = scale if n_accepted == n else self._allowed(draft, p_rows, n_accepted, scale)
            if random.uniform(n_accepted - 1, Purpose.ACCEPT) < allowed:
                break
            n_accepted -= 1
        if n_accepted == n:
            return bonus(draft, p_rows, random)
        p, q, token = p_rows[n_accepted], draft.q[n_accepted], int(draft.tokens[n_accepted])
        u, scale = random.uniform(n_accepted, Purpose.RESIDUAL), math.exp(log_a[n_accepted])
        emitted = verify.residual_sample(p.ids, p.probs, *arrays(q), token, u, scale)
        return Verdict(tuple(range(n_accepted)), emitted, n_accepted)

    def _log_a(self, draft: Draft, p_rows: Sequence[Distribution]) -> list[float]:
        """log a(0), log a(1), …, up to the last that is not minus infinity: nothing behind can be kept."""
        log_a = [0.0]
        for row, token in enumerate(draft.tokens.tolist()):
            p = p_rows[row]
            ratio = verify.log_ratio(p.ids, p.probs, *arrays(draft.q[row]), token)
            if ratio == -math.inf:
                break
            log_a.append(min(0.0, log_a[-1] + ratio))
        return log_a

    def _allowed(self, draft: Draft, p_rows: Sequence[Distribution], row: int, a: float) -> float:
        """h(row) of a row before the last; 1 where a * p = q leaves no other choice."""
        p, token = p_rows[row], int(draft.tokens[row])
        excess = verify.excess_mass(p.ids, p.probs, *arrays(draft.q[row]), token, a)
        rest = excess + 1.0 - a
        return excess / rest if rest > 0.0 else 1.0


Plugin = Block
