"""Guesses on while the draft model is sure of itself."""

from __future__ import annotations

from dataclasses import dataclass

from lucebox.core import Distribution
from lucebox.draft_length.fixed import Fixed
from lucebox.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Threshold(Fixed):
    """Guesses at most `n` tokens, and stops where the likeliest next one is less likely than `p_min`.

    The rule sees the law of a token before it is drawn, never the token, which keeps `token` unbiased.
    """

    n: int = 8
    p_min: float = 0.6

    def __post_init__(self) -> None:
        Fixed.__post_init__(self)
        if not 0.0 <= self.p_min <= 1.0:
            raise ConfigError(f"draft length threshold: p_min must be between 0 and 1, not {self.p_min}")

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        return float(q_row.probs.max()) >= self.p_min


Plugin = Threshold
