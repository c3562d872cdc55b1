"""Guesses on while the draft's entropy is low."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lucebox.core import Distribution
from lucebox.draft_length.fixed import Fixed
from lucebox.errors import ConfigError
from lucebox.sampling.kernels import entropy


@dataclass(frozen=True, kw_only=True)
class Svip(Fixed):
    """Guesses at most `n` tokens, and stops where sqrt(H(q)), H in nats, is more than `h` (SVIP, 2411.18462).

    The law is looked at before a token is drawn from it.
    """

    n: int = 8
    h: float = 0.6

    def __post_init__(self) -> None:
        Fixed.__post_init__(self)
        if not 0.0 <= self.h < math.inf:
            raise ConfigError(f"draft length svip: h must be 0 or more, not {self.h}")

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        return math.sqrt(entropy.entropy(q_row.probs)) <= self.h


Plugin = Svip
