"""Guesses on while one more token is expected to pay for itself at the best speed seen so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lucebox.core import RoundResult
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError

WEIGHT = 0.05  # of the newest round in running means
FADE = 0.01  # of what is known, per plain round
FIRST_ACCEPTANCE = 0.7  # until a drafter was tried


@dataclass(slots=True)
class _Acceptance:
    """The share of a drafter's tokens that stand, of those behind which everything stood."""

    n_accepted: float = FIRST_ACCEPTANCE
    n_judged: float = 1.0

    @property
    def rate(self) -> float:
        return self.n_accepted / self.n_judged

    def add(self, n_accepted: int, depth: int) -> None:
        self.n_accepted += n_accepted - WEIGHT * self.n_accepted
        self.n_judged += min(n_accepted + 1, depth) - WEIGHT * self.n_judged

    def fade(self) -> None:
        """Forgets, where nothing was drafted: so it is tried again one day."""
        self.n_accepted += FADE * (FIRST_ACCEPTANCE - self.n_accepted)
        self.n_judged += FADE * (1.0 - self.n_judged)


@dataclass(kw_only=True)
class Goodput(DraftLengthController):
    """Guesses at most `n` tokens by the first drafter (TurboSpec, 2406.14066).

    One more is drafted if the probability that it stands, the product of acceptance rates up to it, is more
    than R * (t_draft + the rise of t_verify), where R is the most tokens per millisecond that a plain round
    or a draft of any length is expected to make. Costs come from the table of measured ones. Lengths are
    decided before a round: no stop depends on what is drawn in it.
    """

    n: int = 8
    _acceptance: dict[str, _Acceptance] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ConfigError(f"draft length goodput: n must be 0 or more, not {self.n}")

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        return {state.sequence: self._plan(state, costs, len(batch)) for state in batch}

    def update(self, result: RoundResult) -> None:
        if result.depth:
            self._of(result.drafter).add(result.n_accepted, result.depth)
            return
        for acceptance in self._acceptance.values():
            acceptance.fade()

    def _of(self, drafter: str) -> _Acceptance:
        return self._acceptance.setdefault(drafter, _Acceptance())

    def _plan(self, state: SequenceState, costs: Costs, n_sequences: int) -> Plan:
        if not state.drafters:
            return Plan("", 0)
        drafter, n_kv = state.drafters[0], state.n_tokens
        rate = self._of(drafter).rate
        n_rows = n_sequences + state.n_other_rows
        verify = [costs.verify_ms(n_rows + k, n_kv) for k in range(min(self.n, state.n_room) + 1)]
        draft_ms = costs.draft_ms(drafter, 1, n_kv)
        best, best_rate = 0, n_sequences / verify[0] if verify[0] else 0.0
        stands, n_tokens = 1.0, float(n_sequences)
        for k in range(1, len(verify)):
            stands *= rate
            n_tokens += stands
            ms = verify[k] + k * draft_ms
            if ms <= 0.0 or n_tokens / ms > best_rate:
                best, best_rate = k, n_tokens / ms if ms else 0.0
        return Plan(drafter, best)


Plugin = Goodput
