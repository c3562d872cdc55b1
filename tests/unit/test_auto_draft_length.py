"""The controller that guesses only while that is measured to be faster."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lucebox.core import RoundResult
from lucebox.draft_length.auto import N_PLAIN_FIRST, Auto
from lucebox.draft_length.base import SequenceState
from lucebox.draft_length.costs import CostTable

PLAIN_MS = 30.0


@dataclass
class Machine:
    """Runs a controller against fixed costs: a drafted round takes `drafted_ms` for `n_tokens` tokens."""

    controller: Auto
    elapsed_ms: float = 0.0
    n_tokens: int = 0
    n_drafted_rounds: int = 0

    def run(self, n_tokens: int, *, drafted_ms: float, drafted_tokens: int) -> float:
        """Speed against plain decoding over the next `n_tokens`."""
        start_ms, start = self.elapsed_ms, self.n_tokens
        while self.n_tokens < start + n_tokens:
            state = SequenceState(0, self.n_tokens, 1000, ("model",))
            plan = self.controller.plan([state], CostTable())[0]
            if plan.n_max:
                result = RoundResult(0, "model", 4, drafted_tokens - 1, drafted_ms / 2, drafted_ms / 2, 5, 9)
                self.n_drafted_rounds += 1
            else:
                result = RoundResult(0, "", 0, 0, 0.0, PLAIN_MS, 1, 9)
            self.controller.update(result)
            self.elapsed_ms += result.draft_ms + result.verify_ms
            self.n_tokens += result.n_accepted + 1
        return PLAIN_MS * (self.n_tokens - start) / (self.elapsed_ms - start_ms)


def test_where_guessing_loses_it_all_but_stops() -> None:
    machine = Machine(Auto())
    machine.run(500, drafted_ms=150.0, drafted_tokens=3)  # 0.6 of plain speed
    n_before = machine.n_drafted_rounds
    assert machine.run(5000, drafted_ms=150.0, drafted_tokens=3) > 0.98
    assert 0 < machine.n_drafted_rounds - n_before < 50


@pytest.mark.parametrize("n_tokens", [96, 200, 1000])
def test_a_first_answer_is_hardly_slower(n_tokens: int) -> None:
    assert Machine(Auto()).run(n_tokens, drafted_ms=150.0, drafted_tokens=3) > 0.82


def test_where_guessing_wins_it_goes_on() -> None:
    machine = Machine(Auto())
    speed_up = machine.run(1000, drafted_ms=60.0, drafted_tokens=5)  # 2.5 times plain speed
    assert speed_up == pytest.approx(2.5, rel=0.02)


def test_it_changes_its_mind_both_ways() -> None:
    machine = Machine(Auto())
    machine.run(2000, drafted_ms=150.0, drafted_tokens=3)
    assert machine.run(5000, drafted_ms=60.0, drafted_tokens=5) > 2.0
    assert machine.run(5000, drafted_ms=150.0, drafted_tokens=3) > 0.97


def test_plain_decoding_is_measured_first_and_prompts_are_not_part_of_it() -> None:
    controller, state = Auto(), SequenceState(0, 10, 100, ("model",))
    for _ in range(N_PLAIN_FIRST):
        controller.update(RoundResult(0, "", 0, 0, 0.0, 900.0, 64, 10))
        assert controller.plan([state], CostTable())[0].n_max == 0
        controller.update(RoundResult(0, "", 0, 0, 0.0, PLAIN_MS, 1, 10))
    assert controller.plan([state], CostTable())[0].n_max == 7
