"""Speed-up models of serial and overlapped drafting: closed forms, and the same round by round.

Every drafted token is accepted with the same probability `alpha`, independently. A schedule is compared with
plain decoding, one token a step. Serial drafting: Leviathan, Kalman & Matias 2023 (arXiv 2211.17192). PEARL:
Liu et al. 2024 (2408.11850). DSI: Timor et al. 2024 (2405.14105), with as many verifiers as it wants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lucebox.errors import ConfigError
from lucebox.research.costs import CostModel

MAX_GAMMA = 64


def check_alpha(alpha: float) -> None:
    """Raises ConfigError for an acceptance rate outside (0, 1)."""
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"the acceptance rate must be between 0 and 1, not {alpha!r}")


def expected_tokens(alpha: float, gamma: int) -> float:
    """E[N], tokens of a round of serial drafting: (1 - α^(γ+1)) / (1 - α)."""
    return sum(alpha**i for i in range(gamma + 1))


def operations_factor(alpha: float, gamma: int) -> float:
    """The target's arithmetic per token, in units of plain decoding's (Leviathan et al., Table 1)."""
    return (gamma + 1) / expected_tokens(alpha, gamma)


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated run: `n_tokens` tokens in `ms` of the cost model."""

    n_tokens: int
    ms: float


class Schedule(ABC):
    """When drafts and verifications run."""

    def speed_up(self, alpha: float, costs: CostModel) -> float:
        """Tokens per time, in units of plain decoding's. Raises ConfigError for an `alpha` outside (0, 1)."""
        check_alpha(alpha)
        return self._tokens_per_ms(alpha, costs) * costs.verify_ms(1)

    def simulate(self, alpha: float, costs: CostModel, n_rounds: int, seed: int) -> Simulated:
        """`n_rounds` rounds, drawn one by one: what `speed_up` is the limit of."""
        check_alpha(alpha)
        return self._run(alpha, costs, n_rounds, np.random.default_rng(seed))

    @abstractmethod
    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float: ...

    @abstractmethod
    def _run(
        self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator
    ) -> Simulated: ...


@dataclass(frozen=True, slots=True)
class Serial(Schedule):
    """Draft γ tokens, then verify them. γ = 0 is plain decoding."""

    gamma: int

    def __post_init__(self) -> None:
        _check_length("serial drafting", self.gamma, 0)

    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float:
        ms = costs.draft_ms("", self.gamma) + costs.verify_ms(self.gamma + 1)
        return expected_tokens(alpha, self.gamma) / ms

    def _run(self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator) -> Simulated:
        n_accepted = _accepted(alpha, self.gamma, n_rounds, random)
        ms = costs.draft_ms("", self.gamma) + costs.verify_ms(self.gamma + 1)
        return Simulated(int(n_accepted.sum()) + n_rounds, n_rounds * ms)


@dataclass(frozen=True, slots=True)
class Pearl(Schedule):
    """Draft the next γ tokens while the target verifies.

    With nothing certain ahead, the target verifies the first token while the others are drafted; once it
    stands, the other γ - 1, and from then on γ tokens a step until one is rejected. A rejected token is
    corrected; no token comes from behind an accepted draft, whose next one is drafted already.
    """

    gamma: int

    def __post_init__(self) -> None:
        _check_length("PEARL", self.gamma, 2)

    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float:
        g, n = self.gamma, alpha ** (self.gamma - 1) / (1 - alpha**self.gamma)
        n_tokens = 1 / alpha + _tokens_without_bonus(alpha, g - 1) + n * _tokens_without_bonus(alpha, g)
        ms = self._step_ms(1, costs) / alpha + self._step_ms(g - 1, costs) + n * self._step_ms(g, costs)
        return n_tokens / ms

    def _run(self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator) -> Simulated:
        n_tokens, ms, n_rows, n_next = 0, 0.0, 1, self.gamma - 1
        for n_right in random.geometric(1 - alpha, n_rounds) - 1:
            ms += self._step_ms(n_rows, costs)
            n_tokens += min(int(n_right) + 1, n_rows)
            n_rows, n_next = (1, self.gamma - 1) if n_right < n_rows else (n_next, self.gamma)
        return Simulated(n_tokens, ms)

    def _step_ms(self, n_rows: int, costs: CostModel) -> float:
        return max(costs.verify_ms(n_rows), costs.draft_ms("", self.gamma))


@dataclass(frozen=True, slots=True)
class Ssd(Schedule):
    """Draft for the likeliest outcomes of the verification under way: with probability `hit_rate` the next
    draft is there when that ends, otherwise it is made then."""

    gamma: int
    hit_rate: float

    def __post_init__(self) -> None:
        _check_length("SSD", self.gamma, 1)
        if not 0.0 <= self.hit_rate <= 1.0:
            raise ConfigError(f"the hit rate must be in [0, 1], not {self.hit_rate!r}")

    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float:
        hit, miss = self._round_ms(costs)
        ms = self.hit_rate * hit + (1 - self.hit_rate) * miss
        return expected_tokens(alpha, self.gamma) / ms

    def _run(self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator) -> Simulated:
        n_hits = int((random.random(n_rounds) < self.hit_rate).sum())
        hit, miss = self._round_ms(costs)
        n_accepted = _accepted(alpha, self.gamma, n_rounds, random)
        return Simulated(int(n_accepted.sum()) + n_rounds, n_hits * hit + (n_rounds - n_hits) * miss)

    def _round_ms(self, costs: CostModel) -> tuple[float, float]:
        """A round whose draft was there, and one whose was not."""
        verify, draft = costs.verify_ms(self.gamma + 1), costs.draft_ms("", self.gamma)
        return max(verify, draft), verify + draft


@dataclass(frozen=True, slots=True)
class Dsi(Schedule):
    """Start a verification for every `lookahead` drafted tokens, on as many verifiers as it takes; start
    again as soon as a rejection is detected."""

    lookahead: int

    def __post_init__(self) -> None:
        _check_length("DSI", self.lookahead, 1)

    def _tokens_per_ms(self, alpha: float, costs: CostModel) -> float:
        n_blocks = alpha / (1 - alpha**self.lookahead)
        return 1 / (1 - alpha) / self._run_ms(n_blocks, costs)

    def _run(self, alpha: float, costs: CostModel, n_rounds: int, random: np.random.Generator) -> Simulated:
        n_accepted = random.geometric(1 - alpha, n_rounds) - 1
        n_blocks = int((-(-n_accepted // self.lookahead)).sum())
        n_tokens = int(n_accepted.sum()) + n_rounds
        return Simulated(n_tokens, n_rounds * self._run_ms(n_blocks / n_rounds, costs))

    def _run_ms(self, n_blocks: float, costs: CostModel) -> float:
        """A run up to a rejection behind `n_blocks` drafted blocks: these, and one verification."""
        return costs.verify_ms(self.lookahead) + costs.draft_ms("", self.lookahead) * n_blocks


def best_serial(alpha: float, costs: CostModel, gammas: Iterable[int] = range(MAX_GAMMA + 1)) -> Serial:
    """The serial schedule of the highest speed-up; the shortest draft among ties."""
    return max((Serial(gamma) for gamma in gammas), key=lambda schedule: schedule.speed_up(alpha, costs))


def best_ssd(
    alpha: float, costs: CostModel, hit_rate: float, gammas: Iterable[int] = range(1, MAX_GAMMA + 1)
) -> Ssd:
    """The SSD schedule of the highest speed-up; the shortest draft among ties."""
    schedules = (Ssd(gamma, hit_rate) for gamma in gammas)
    return max(schedules, key=lambda schedule: schedule.speed_up(alpha, costs))


def best_pearl(alpha: float, costs: CostModel, gammas: Iterable[int] = range(2, MAX_GAMMA + 1)) -> Pearl:
    """The PEARL schedule of the highest speed-up; the shortest draft among ties."""
    return max((Pearl(gamma) for gamma in gammas), key=lambda schedule: schedule.speed_up(alpha, costs))


def _check_length(schedule: str, n: int, least: int) -> None:
    if n < least:
        raise ConfigError(f"{schedule} needs a draft length of {least} or more, not {n}")


def _accepted(
    alpha: float, gamma: int, n: int, random: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Accepted tokens of `n` drafts of `gamma`."""
    return np.minimum(random.geometric(1 - alpha, n) - 1, gamma)


def _tokens_without_bonus(alpha: float, n: int) -> float:
    """E of the tokens that `n` verified ones bring: those accepted, and the correction of a rejected one."""
    return sum(alpha**i for i in range(1, n + 1)) + 1 - alpha**n
