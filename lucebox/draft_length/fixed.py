"""Always the same draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Fixed(DraftLengthController):
    """Guesses `n` tokens in every round, by the first drafter."""

    n: int = 4

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"draft length fixed: n must be 0 or more, not {self.n}")

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        return {state.sequence: self._plan(state) for state in batch}

    def _plan(self, state: SequenceState) -> Plan:
        if not state.drafters:
            return Plan("", 0)
        return Plan(state.drafters[0], max(0, min(self.n, state.n_room)))


Plugin = Fixed
