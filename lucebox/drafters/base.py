"""The contract of a drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler


@dataclass(slots=True)
class DraftRequest:
    """What one sequence asks of a drafter for one round.

    `prefix` holds every committed token, prompt included; it may be hypothetical, and grows after the call.
    `n_max` is the longest draft of use. `keep_drafting(q_row, depth)` asks the draft-length controller if
    it goes on behind `depth` tokens. `stop_tokens` end a draft: nothing behind them could be kept.
    """

    sequence: int
    prefix: Sequence[int]
    n_max: int
    draw_mode: DrawMode
    sampler: Sampler
    random: RoundRandom
    keep_drafting: Callable[[Distribution, int], bool]
    stop_tokens: frozenset[int]


class Drafter(ABC):
    """Guesses what comes next. Owns its own cache, and rolls it back by itself.

    A drafter is one file in `lucebox/drafters/` whose module name is its name, exporting its class as
    `Plugin`. An exception out of `propose` or `observe` ends speculation for the sequences concerned, and
    nothing else.
    """

    @abstractmethod
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft per request, in order; an empty draft where there is nothing to guess."""

    def observe(self, sequence: int, prefix_length: int, verdict: Verdict) -> None:  # noqa: B027 (optional)
        """Learns what became of the last draft of `sequence`, whose prefix had `prefix_length` tokens."""

    def fork(self, source: int, target: int) -> None:  # noqa: B027 (optional)
        """`target` starts with what is known of `source`."""

    @abstractmethod
    def release(self, sequence: int) -> None:
        """Forgets `sequence` and frees its cells."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Frees every device object."""
