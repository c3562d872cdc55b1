"""Always the same draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lucebox.draft_length.base import DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Fixed(DraftLengthController):
    """Guesses `n` tokens in every round, by the first drafter."""

    n: int = 4

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"draft length fixed: n must be 0 or more, not {self.n}")

    def plan(self, batch: Sequence[SequenceState], drafters: Sequence[str]) -> Mapping[int, Plan]:
        drafter, n = (drafters[0], self.n) if drafters else ("", 0)
        return {state.sequence: Plan(drafter, max(0, min(n, state.n_room))) for state in batch}


Plugin = Fixed
