"""How much a step may spend on what is not needed now."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lucebox.sampling.spare_time import SpareTime


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def spend(spare: SpareTime, clock: Clock, seconds: float, *, is_spare: bool = True) -> None:
    with spare.measured(is_spare=is_spare):
        clock.now_s += seconds


def test_there_is_no_bound_before_a_step_begins() -> None:
    clock = Clock()
    spare = SpareTime(clock)
    spend(spare, clock, 100.0)
    assert spare.is_left
    assert spare.n_affordable(1000) == 1000


def test_a_share_is_spent_and_comes_again() -> None:
    clock = Clock()
    spare = SpareTime(clock)
    spare.renew(0.010)
    spend(spare, clock, 0.006)
    assert spare.is_left
    spend(spare, clock, 0.005)
    assert not spare.is_left
    assert spare.n_affordable(1) == 0
    spare.renew(0.010)
    assert spare.is_left


def test_what_was_overdrawn_is_paid_back() -> None:
    """A piece of work of ten shares is done in a tenth of the steps."""
    clock = Clock()
    spare = SpareTime(clock)
    n_done = 0
    for _ in range(1000):
        spare.renew(0.001)
        if spare.is_left:
            spend(spare, clock, 0.010)
            n_done += 1
    assert n_done == pytest.approx(100, abs=2)


def test_unused_shares_are_not_saved_up() -> None:
    clock = Clock()
    spare = SpareTime(clock)
    for _ in range(100):
        spare.renew(0.010)
    spend(spare, clock, 0.011)
    assert not spare.is_left


def test_what_had_to_be_done_costs_nothing_but_tells_what_more_would_cost() -> None:
    clock = Clock()
    spare = SpareTime(clock)
    spare.renew(0.010)
    for _ in range(30):
        spend(spare, clock, 0.004, is_spare=False)
    assert spare.is_left
    assert spare.n_affordable(9) == 2


def test_it_can_be_ended() -> None:
    spare = SpareTime(Clock())
    spare.renew(1.0)
    spare.end()
    spare.renew(1.0)
    assert not spare.is_left


def test_work_that_fails_is_counted() -> None:
    clock = Clock()
    spare = SpareTime(clock)
    spare.renew(0.010)
    with suppress(ZeroDivisionError), spare.measured(is_spare=True):
        clock.now_s += 1.0
        raise ZeroDivisionError
    assert not spare.is_left
