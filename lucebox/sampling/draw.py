"""From a law and a uniform number to a token."""

from __future__ import annotations

from lucebox.core import Distribution
from lucebox.sampling.kernels import sampling


def sample(distribution: Distribution, u: float) -> int:
    """The token whose share of the cumulated probabilities holds `u` of [0, 1).

    Sums in float64, by ascending id; probabilities need not add up to one. Never a token of probability zero.
    """
    return sampling.sample(distribution.ids, distribution.probs, u)
