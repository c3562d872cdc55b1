"""Fuzzy speculative decoding (Holsman, Huang & Dhingra 2025, arXiv 2502.20704)."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy, arrays, is_collapsed, judge_chain, uncollapsed
from lucebox.acceptance.kernels import divergence as kernels
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.plugins import did_you_mean
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom

DIVERGENCES = ("js", "kl", "tv")


class Fuzzy(AcceptanceStrategy):
    """Accepts whatever was drafted where p and q lie within `threshold` of each other; else a draw from p.

    `divergence` is js (Jensen-Shannon, at most log 2), kl (KL(p || q), infinite where q lacks a token of p),
    both in nats, or tv (total variation, at most 1). Not lossless. A deterministic draft is a one-hot q. At
    temperature 0 the rule sees p at temperature 1, and the target's likeliest token always stands.
    """

    lossless = False
    needs_q = True
    draw_mode = DrawMode.SAMPLE

    def __init__(self, *, divergence: str = "js", threshold: float = 0.1) -> None:
        if divergence not in DIVERGENCES:
            raise ConfigError(
                f"fuzzy: unknown divergence {divergence!r}",
                remedy=did_you_mean(divergence, list(DIVERGENCES)),
            )
        if not threshold >= 0.0:
            raise ConfigError(f"fuzzy: threshold must be 0 or more, not {threshold:g}")
        self.divergence, self.threshold = divergence, threshold

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def accepts(row: int, token: int) -> bool:
            if is_collapsed(p_rows) and p_rows[row].argmax() == token:
                return True
            p = uncollapsed(p_rows, row)
            found = kernels.divergence(p.ids, p.probs, *arrays(draft.q[row]), token, self.divergence)
            return found <= self.threshold

        def correction(row: int, token: int) -> int:
            return sample(p_rows[row], random.uniform(row, Purpose.RESIDUAL))

        return judge_chain(draft, p_rows, random, accepts, correction)


Plugin = Fuzzy
