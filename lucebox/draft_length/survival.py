"""How far drafts of one drafter get, learned by depth over all sequences, and shifted for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

DISCOUNT = 0.99  # of what is known of a depth, per round that says more of it
PRIOR_WEIGHT = 2.0  # rounds that what is known of the depth above counts for
SHIFT_DISCOUNT = 0.9  # of what is known of a sequence, per round: text changes within an answer
SHIFT_WEIGHT = 4.0  # trials that what is known of all sequences counts for
LOWEST, HIGHEST = 0.02, 0.995


@dataclass(slots=True)
class Hazards:
    """The probability of reaching each next depth, having reached the one above: a discounted Kaplan-Meier
    estimate, whose depths without evidence are taken for as good as the one above."""

    n_depths: int
    prior: float
    known: list[float] = field(default_factory=list)
    _n_reached: list[float] = field(default_factory=list)
    _n_tried: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = [self.prior] * self.n_depths
        self._n_reached = [0.0] * self.n_depths
        self._n_tried = [0.0] * self.n_depths

    @property
    def n_rounds(self) -> float:
        """Discounted rounds that something was learned from."""
        return self._n_tried[0]

    def add(self, n_reached: int, n_max: int) -> None:
        """A round that reached depth `n_reached` of at most `n_max`, behind which it says nothing."""
        reached, tried = self._n_reached, self._n_tried
        for i in range(min(n_reached + 1, n_max, self.n_depths)):
            reached[i] = DISCOUNT * reached[i] + (i < n_reached)
            tried[i] = DISCOUNT * tried[i] + 1.0
        above = self.prior
        for i in range(self.n_depths):
            above = (reached[i] + PRIOR_WEIGHT * above) / (tried[i] + PRIOR_WEIGHT)
            self.known[i] = above


@dataclass(slots=True)
class Shift:
    """How much better or worse than expected one sequence fares, as a factor on odds."""

    odds: float = 1.0
    upper_odds: float = math.inf
    n: float = 0.0
    _n_reached: float = 0.0
    _n_expected: float = 0.0

    def __post_init__(self) -> None:
        self._settle()

    def add(self, n_reached: int, expected: Sequence[float]) -> None:
        """A round that tried as many steps as `expected` has probabilities, and took `n_reached` of them."""
        self._n_reached = SHIFT_DISCOUNT * self._n_reached + n_reached
        self._n_expected = SHIFT_DISCOUNT * self._n_expected + sum(expected)
        self.n = SHIFT_DISCOUNT * self.n + len(expected)
        self._settle()

    def fade(self, discount: float) -> None:
        """Forgets: nothing was tried for a while."""
        self._n_reached *= discount
        self._n_expected *= discount
        self.n *= discount
        self._settle()

    def _settle(self) -> None:
        mean = self._n_expected / self.n if self.n > 1e-9 else 0.5
        n = self.n + SHIFT_WEIGHT
        p = _bounded((self._n_reached + SHIFT_WEIGHT * mean) / n)
        upper = _bounded(p + 1.5 * math.sqrt(p * (1.0 - p) / n))
        mean = _bounded(mean)
        self.odds = p / (1.0 - p) * (1.0 - mean) / mean
        self.upper_odds = upper / (1.0 - upper) * (1.0 - mean) / mean


def shifted(p: float, odds: float) -> float:
    """`p` with its odds multiplied."""
    return p * odds / (1.0 - p + p * odds)


def _bounded(p: float) -> float:
    return min(HIGHEST, max(LOWEST, p))
