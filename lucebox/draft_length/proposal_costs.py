"""What the proposals of a drafter without a draft model took, in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

N_MEDIAN = 5
WEIGHT = 0.1  # of the newest median in a running mean


@dataclass(slots=True)
class ProposalCosts:
    """A running mean of medians: whoever proposes nothing most of the time costs next to nothing."""

    _mean_ms: float = 0.0
    _latest_ms: list[float] = field(default_factory=list)

    def ms(self, n_tokens: int) -> float:
        """A proposal, however long: these drafters look their guesses up."""
        return self._mean_ms if n_tokens else 0.0

    def observe(self, n_tokens: int, ms: float) -> None:
        """Learns from a proposal of `n_tokens` that took `ms`."""
        latest = self._latest_ms
        is_first = not latest
        latest.append(ms)
        del latest[:-N_MEDIAN]
        self._mean_ms += (1.0 if is_first else WEIGHT) * (median(latest) - self._mean_ms)
