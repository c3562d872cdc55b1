"""The contract of a draft-length controller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lucebox.core import Distribution, RoundResult


@dataclass(frozen=True, slots=True)
class SequenceState:
    """What a controller may know of a sequence.

    `n_room` (context, max_tokens) bounds the draft. `drafters` are the names at hand for it, preferred first;
    with none, nothing can be drafted. `n_behind[drafter]` are the tokens that drafter would have to compute
    before its first guess, beyond the last one: a model drafter's share of a prompt, or of plain rounds.
    """

    sequence: int
    n_tokens: int
    n_room: int
    drafters: Sequence[str] = ()
    n_behind: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How one sequence is drafted for this round: at most `n_max` tokens; 0 is plain decoding.

    `shape[d]` is how many children every node of depth d gets (0: the root), and 1 behind its end: () is a
    chain. Strategies that judge chains only, and drafters that know no trees, take any shape for a chain.
    """

    drafter: str
    n_max: int
    shape: tuple[int, ...] = ()


class Costs(Protocol):
    """What things cost on this machine, measured, in milliseconds."""

    def verify_ms(self, n_rows: int, n_kv: int) -> float:
        """A forward of the target with `n_rows` rows in all, over sequences of up to `n_kv` tokens."""

    def draft_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """A chain of `n_tokens` guesses by `drafter`, caught up already."""

    def catch_up_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """What `n_tokens` that the drafter has not computed yet add to its next draft."""


class DraftLengthController(ABC):
    """Decides whether, by what, and how far to guess. Never touches tensors.

    A controller is one file in `lucebox/draft_length/` whose module name is its name, exporting its class
    as `Plugin`.
    """

    @abstractmethod
    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        """A plan for every sequence of the batch, whose rows share one forward."""

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        """Whether to draw one more token, from `q_row`, behind `depth` drafted ones."""
        return True

    def update(self, result: RoundResult) -> None:  # noqa: B027 most have nothing to learn
        """Learns from a finished round, drafted or plain."""

    def release(self, sequence: int) -> None:  # noqa: B027 most know sequences by their rounds only
        """Forgets `sequence`, which has ended; its number will be another one's."""
