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
    `acceptance` names the strategy that will judge, `n_generated` counts the answer so far, whose prompt took
    `prompt_ms`, and `n_other_rows` are in the same forward for sequences that are not in this batch.
    """

    sequence: int
    n_tokens: int
    n_room: int
    drafters: Sequence[str] = ()
    n_behind: Mapping[str, int] = field(default_factory=dict)
    acceptance: str = ""
    n_generated: int = 0
    prompt_ms: float = 0.0
    n_other_rows: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How one sequence is drafted for this round: at most `n_max` tokens; 0 is plain decoding.

    `shape[d]` is how many children every node of depth d gets (0: the root), and 1 behind its end: () is a
    chain. Strategies that judge chains only, and drafters that know no trees, take any shape for a chain.
    `otherwise` is followed where `drafter` had nothing to say, or nothing that was worth verifying.
    """

    drafter: str
    n_max: int
    shape: tuple[int, ...] = ()
    otherwise: Plan | None = None


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

    def is_long_enough(self, sequence: int, depth: int) -> bool:
        """Whether a draft of `depth` tokens is to end there. Asked when the last of them is about to be
        drawn, before a forward is spent on what follows."""
        return False

    def trim(self, sequence: int, drafter: str, tokens: Sequence[int]) -> int:
        """How many of the `tokens` that `drafter` looked up, without laws or trees, are worth verifying."""
        return len(tokens)

    def update(self, result: RoundResult) -> None:  # noqa: B027 most have nothing to learn
        """Learns from a finished round, drafted or plain."""

    def release(self, sequence: int) -> None:  # noqa: B027 most know sequences by their rounds only
        """Forgets `sequence`, which has ended; its number will be another one's."""
