"""Guesses on while the draft's entropy lets acceptance be likely."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lucebox.core import Distribution
from lucebox.draft_length.fixed import Fixed
from lucebox.errors import ConfigError
from lucebox.sampling.kernels import entropy


@dataclass(frozen=True, kw_only=True)
class AdaEdl(Fixed):
    """Guesses at most `n` tokens, and stops where 1 - sqrt(kappa * H(q)), which bounds the acceptance of the
    next one from below, is less than `threshold` (lambda in AdaEDL, 2410.18351). H is in nats.

    The bound is looked at before a token is drawn, and stays the same throughout.
    """

    n: int = 8
    kappa: float = 0.2
    threshold: float = 0.6

    def __post_init__(self) -> None:
        Fixed.__post_init__(self)
        if not 0.0 <= self.kappa < math.inf:
            raise ConfigError(f"draft length adaedl: kappa must be 0 or more, not {self.kappa}")
        if not 0.0 <= self.threshold <= 1.0:
            raise ConfigError(f"draft length adaedl: threshold must be between 0 and 1, not {self.threshold}")

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        return 1.0 - math.sqrt(self.kappa * entropy.entropy(q_row.probs)) >= self.threshold


Plugin = AdaEdl
