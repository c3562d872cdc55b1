"""The schedule of lucebox.engine.overlap: the draft model goes on from likely outcomes meanwhile.

As in lucebox.research.simulator, every drafted token is accepted with the same probability, independently,
and so is the draft model's guess of the token behind a whole draft.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lucebox.engine.overlap_policy import LEAST_CHANCE, N_SPARE
from lucebox.errors import ConfigError
from lucebox.research.costs import CostModel
from lucebox.research.simulator import MAX_GAMMA, Schedule, Simulated, expected_tokens

DEFAULT_BETA = 0.5


@dataclass(slots=True)
class _Ahead:
    """What is drafted for one outcome: at first the token behind the whole draft, where it `asks`."""

    chance: float
    asks: bool
    n_ready: int = 0


@dataclass(frozen=True, slots=True)
class Overlapped(Schedule):
    """Draft γ tokens and verify them; meanwhile draft for likely outcomes, the likeliest first.

    Where a token is rejected, the draft model's second guess is right with probability `beta`. A forward of
    it serves `width` outcomes at the price of one, and begins if it is expected to spare more time than it
    makes the target wait. What is missing of the draft for the true outcome is drafted when that is known.
    """

    gamma: int
    beta: float = DEFAULT_BETA
    width: int = 1

    def __post_init__(self) -> None:
        if self.gamma < 1:
            raise ConfigError(f"overlapped drafting needs a draft length of 1 or more, not {self.gamma}")
        if not 0.0 <= self.beta <= 1.0:
            raise ConfigError(f"the second guess is right with a probability in [0, 1], not {self.beta!r}")
        if self.width < 1:
            raise ConfigError(f"a forward serves 1 outcome or more, not {self.width}")

    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float:
        ready, ms = self._ahead(alpha, costs)
        n_spared = alpha ** (self.gamma + 1) * ready[-1]
        n_spared += sum(alpha**i * (1 - alpha) * self.beta * n for i, n in enumerate(ready[:-1]))
        ms += costs.draft_ms("", 1) * (self.gamma - n_spared)
        return expected_tokens(alpha, self.gamma) / ms

    def _run(self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator) -> Simulated:
        n_right = np.minimum(random.geometric(1 - alpha, n_rounds) - 1, self.gamma + 1)
        return self._replayed(n_right, random.random(n_rounds) < self.beta, alpha, costs)

    def replay(
        self, n_right: Iterable[int], second: Iterable[bool], alpha: float, costs: CostModel
    ) -> Simulated:
        """Rounds whose draft model was right `n_right` times in a row, γ + 1 at most, and whose `second`
        guess then was or was not; they are expected to be as likely as `alpha` and `beta` say."""
        return self._replayed(np.array([*n_right]), np.array([*second], np.bool_), alpha, costs)

    def _replayed(
        self,
        n_right: np.ndarray[tuple[int], np.dtype[np.int64]],
        second: np.ndarray[tuple[int], np.dtype[np.bool_]],
        alpha: float,
        costs: CostModel,
    ) -> Simulated:
        ready, round_ms = self._ahead(alpha, costs)
        n_accepted = np.minimum(n_right, self.gamma)
        is_foreseen = np.where(n_right < self.gamma, second, n_right > self.gamma)
        n_spared = int((np.array(ready)[n_accepted] * is_foreseen).sum())
        n_rounds = len(n_right)
        draft_ms = costs.draft_ms("", 1) * (n_rounds * self.gamma - n_spared)
        return Simulated(int(n_accepted.sum()) + n_rounds, n_rounds * round_ms + draft_ms)

    def _ahead(self, alpha: float, costs: CostModel) -> tuple[list[int], float]:
        """Tokens that are ready for the case that i of the draft stand, and the time until then."""
        verify_ms, forward_ms = costs.verify_ms(self.gamma + 1), costs.draft_ms("", 1)
        outcomes = [_Ahead(alpha**i * (1 - alpha) * self.beta, asks=False) for i in range(self.gamma)]
        outcomes.append(_Ahead(alpha ** (self.gamma + 1), asks=True))
        by_chance = sorted(outcomes[:-1], key=lambda o: -o.chance)
        likely = [o for o in (*by_chance[:N_SPARE], outcomes[-1]) if o.chance >= LEAST_CHANCE]
        likely.sort(key=lambda o: -o.chance)
        ms = 0.0
        while chosen := [o for o in likely if o.n_ready < self.gamma][: self.width]:
            chance = sum(o.chance for o in chosen if not o.asks)  # asking spares nothing by itself
            if chance * forward_ms <= forward_ms - max(0.0, verify_ms - ms):
                break
            for o in chosen:
                o.n_ready += not o.asks
                o.asks = False
            ms += forward_ms
        return [o.n_ready for o in outcomes], max(ms, verify_ms)


def best_overlapped(
    alpha: float,
    costs: CostModel,
    beta: float = DEFAULT_BETA,
    gammas: Iterable[int] = range(1, MAX_GAMMA + 1),
) -> Overlapped:
    """The overlapped schedule of the highest speed-up; the shortest draft among ties."""
    schedules = (Overlapped(gamma, beta) for gamma in gammas)
    return max(schedules, key=lambda schedule: schedule.speed_up(alpha, costs))
