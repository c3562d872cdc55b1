"""Whether to overlap is decided by what it is measured to bring, and a bad try costs next to nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from lucebox.config import Overlap as Mode
from lucebox.draft_length.costs import CostTable
from lucebox.engine.overlap_policy import OverlapPolicy, StepCost

GAMMA = 4
N_ROWS = 1 + GAMMA
VERIFY_MS = 40.0
DRAFT_MS = 5.0


@dataclass
class Machine:
    """Rounds of `GAMMA` drafted tokens. A forward beside a draft takes `slowdown` times as long; with
    `hit_rate` it spares the next round all of its draft, and it always makes it wait for `wait_ms`."""

    mode: Mode
    slowdown: float = 1.0
    hit_rate: float = 0.6
    wait_ms: float = 1.0
    noise: float = 0.05
    seed: int = 1
    pace: float = 1.0  # of the machine as a whole
    elapsed_ms: float = 0.0
    serial_ms: float = 0.0  # what the same rounds would have taken serially
    n_ahead: int = 0
    n_rounds: int = 0
    policy: OverlapPolicy = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        costs = CostTable()
        costs.verify.set([(1, 0, VERIFY_MS / 2), (N_ROWS, 0, VERIFY_MS)])
        costs.draft.set([(1, 0, DRAFT_MS)])
        self.policy = OverlapPolicy(self.mode, costs)

    def run(self, n_rounds: int) -> None:
        draft_ms = GAMMA * DRAFT_MS
        for _ in range(n_rounds):
            wants = self.policy.wants()
            noise = float(np.exp(self.noise * self._random.standard_normal()))
            alone_ms = self.pace * VERIFY_MS * noise
            verify_ms = alone_ms * (self.slowdown if wants else 1.0)
            saved_ms = draft_ms if wants and self._random.random() < self.hit_rate else 0.0
            waited_ms = self.wait_ms if wants else 0.0
            self.elapsed_ms += verify_ms + waited_ms + draft_ms - saved_ms
            self.serial_ms += alone_ms + draft_ms
            self.policy.book(StepCost(N_ROWS, 0, verify_ms, wants, saved_ms, waited_ms))
            if not wants:
                self.policy.costs.verify.observe(N_ROWS, 0, verify_ms)
            self.n_ahead += wants
            self.n_rounds += 1


@pytest.mark.parametrize("seed", range(5))
def test_where_it_hurts_it_is_left_alone(seed: int) -> None:
    """The target slows down by 30% while the draft model computes, which is more than that saves."""
    machine = Machine("auto", slowdown=1.3, hit_rate=0.4, seed=seed)
    machine.run(400)
    assert machine.elapsed_ms < 1.03 * machine.serial_ms
    machine.run(3000)
    assert machine.elapsed_ms < 1.01 * machine.serial_ms
    assert machine.n_ahead < 0.05 * machine.n_rounds
    always = Machine("on", slowdown=1.3, hit_rate=0.4, seed=seed)
    always.run(1000)
    assert always.elapsed_ms > 1.05 * always.serial_ms


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slowdown", [1.0, 1.1])
def test_where_it_helps_it_is_used(seed: int, slowdown: float) -> None:
    machine, always, never = (Machine(mode, slowdown=slowdown, seed=seed) for mode in ("auto", "on", "off"))
    for each in (machine, always, never):
        each.run(1000)
    assert never.n_ahead == 0
    assert always.n_ahead == 1000
    assert machine.n_ahead > 850
    gain = always.serial_ms - always.elapsed_ms
    assert gain > 0.05 * always.serial_ms
    assert machine.serial_ms - machine.elapsed_ms > 0.85 * gain


def test_a_machine_that_gets_slower_is_not_held_against_it() -> None:
    machine = Machine("auto")
    machine.run(300)
    machine.pace = 1.5
    n_before = machine.n_ahead
    machine.run(300)
    assert machine.n_ahead - n_before > 240


def test_what_helped_and_hurts_now_ends_and_comes_back() -> None:
    machine = Machine("auto")
    machine.run(300)
    machine.slowdown = 1.6
    machine.run(100)
    n_before = machine.n_ahead
    machine.run(500)
    assert machine.n_ahead - n_before < 100
    machine.slowdown = 1.0
    machine.run(1500)
    n_before = machine.n_ahead
    machine.run(300)
    assert machine.n_ahead - n_before > 250


def test_without_measured_costs_nothing_is_risked() -> None:
    assert not OverlapPolicy("auto", CostTable()).wants()
    assert OverlapPolicy("on", CostTable()).wants()
