"""Typical acceptance (Medusa; Cai et al. 2024, arXiv 2401.10774)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, is_collapsed, judge_chain, uncollapsed
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling.draw import sample
from lucebox.sampling.kernels import entropy
from lucebox.sampling.random import Purpose, RoundRandom


class Typical(AcceptanceStrategy):
    """Accepts x iff p(x) > min(epsilon, delta * exp(-H(p))), H in nats; emits a draw from p on rejection.

    Not lossless: a draft may bring in any token that is typical of the target. At temperature 0 the rule sees
    the law at temperature 1, the target's likeliest token always stands, and it is what follows a rejection.
    """

    lossless = False
    needs_q = False
    draw_mode = DrawMode.ARGMAX

    def __init__(self, *, epsilon: float = 0.09, delta: float = 0.3) -> None:
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if not 0.0 < value <= 1.0:
                raise ConfigError(f"typical: {name} must be in (0, 1], not {value:g}")
        self.epsilon, self.delta = epsilon, delta

    def threshold(self, p: Distribution) -> float:
        """What a token's probability must exceed."""
        return min(self.epsilon, self.delta * math.exp(-entropy.entropy(p.probs)))

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def accepts(row: int, token: int) -> bool:
            if is_collapsed(p_rows) and p_rows[row].argmax() == token:
                return True
            p = uncollapsed(p_rows, row)
            probability = p.prob(token)
            return probability > self.epsilon or probability > self.threshold(p)

        def correction(row: int, token: int) -> int:
            return sample(p_rows[row], random.uniform(row, Purpose.RESIDUAL))

        return judge_chain(draft, p_rows, random, accepts, correction)


Plugin = Typical
