"""Always the same draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lucebox.draft_length import shape as shapes
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Fixed(DraftLengthController):
    """Guesses `n` tokens in every round, by the first drafter.

    `shape` makes trees of them where the strategy judges trees: `3x2` has 3 guesses for the next token, and 2
    behind each of these; `n` bounds all of its tokens.
    """

    n: int = 4
    shape: str = ""
    _children: tuple[int, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        if self.n < 0:
            name = type(self).__module__.rpartition(".")[2]
            raise ConfigError(f"draft length {name}: n must be 0 or more, not {self.n}")
        object.__setattr__(self, "_children", shapes.parse(self.shape))

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        return {state.sequence: self._plan(state) for state in batch}

    def _plan(self, state: SequenceState) -> Plan:
        if not state.drafters:
            return Plan("", 0)
        return Plan(state.drafters[0], max(0, min(self.n, state.n_room)), self._children)


Plugin = Fixed
