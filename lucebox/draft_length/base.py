"""The contract of a draft-length controller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lucebox.core import Distribution, RoundResult


@dataclass(frozen=True, slots=True)
class SequenceState:
    """What a controller may know of a sequence. `n_room` (context, max_tokens) bounds the draft."""

    sequence: int
    n_tokens: int
    n_room: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How one sequence is drafted for this round. n_max 0 is plain decoding."""

    drafter: str
    n_max: int


class DraftLengthController(ABC):
    """Decides whether, by what, and how far to guess. Never touches tensors.

    A controller is one file in `lucebox/draft_length/` whose module name is its name, exporting its class
    as `Plugin`.
    """

    @abstractmethod
    def plan(self, batch: Sequence[SequenceState], drafters: Sequence[str]) -> Mapping[int, Plan]:
        """A plan for every sequence of the batch. `drafters` are the names at hand, preferred first."""

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        """Whether to draw one more token, from `q_row`, behind `depth` drafted ones."""
        return True

    def update(self, result: RoundResult) -> None:  # noqa: B027 most have nothing to learn
        """Learns from a finished round."""
