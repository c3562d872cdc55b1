"""Draft-length controllers: what they plan, when they stop, and their options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lucebox import draft_length
from lucebox.core import Distribution, RoundResult
from lucebox.draft_length.base import Plan, SequenceState
from lucebox.draft_length.costs import CostTable
from lucebox.errors import ConfigError

DRAFTERS = ("model", "ngram")
BATCH = [SequenceState(*state, DRAFTERS) for state in ((3, 10, 100), (5, 90, 2), (6, 99, 0))]
COSTS = CostTable()


def test_names() -> None:
    assert {"auto", "fixed", "threshold"} <= set(draft_length.names())


@pytest.mark.parametrize("name", draft_length.names())
def test_every_controller_plans_for_every_sequence(name: str) -> None:
    controller = draft_length.create(name)
    for drafters in (DRAFTERS, ()):
        batch = [replace(state, drafters=drafters) for state in BATCH]
        plans = controller.plan(batch, COSTS)
        for state in batch:
            assert 0 <= plans[state.sequence].n_max <= (state.n_room if drafters else 0)
            assert plans[state.sequence].drafter in (*drafters, "")
            assert plans[state.sequence].drafter or plans[state.sequence].n_max == 0
    for n_accepted in (0, 2):
        controller.update(RoundResult(3, "model", 2, n_accepted, 1.0, 5.0, 3, 10))
    assert isinstance(controller.keep_drafting(3, Distribution.one_hot(3, 0), 0), bool)


@pytest.mark.parametrize(
    ("spec", "n"), [("fixed", 4), ("fixed:n=6", 6), ("threshold", 8), ("threshold:n=6", 6)]
)
def test_plans_fit_the_room_that_is_left(spec: str, n: int) -> None:
    plans = draft_length.create(spec).plan(BATCH, COSTS)
    assert plans == {3: Plan("model", n), 5: Plan("model", 2), 6: Plan("model", 0)}


def test_without_a_drafter_there_is_nothing_to_plan() -> None:
    alone = [replace(state, drafters=()) for state in BATCH]
    assert all(plan.n_max == 0 for plan in draft_length.create("fixed").plan(alone, COSTS).values())
    assert draft_length.create("fixed:n=0").plan(BATCH[:1], COSTS)[3].n_max == 0


def test_fixed_drafts_on_and_threshold_stops() -> None:
    q = Distribution(3, np.array([0.25, 0.5, 0.25], np.float32))
    sparse = Distribution(9, np.array([0.5, 0.5], np.float32), np.array([2, 7], np.int32))
    for depth in (0, 5):
        assert draft_length.create("fixed").keep_drafting(3, q, depth)
        for row in (q, sparse):
            assert draft_length.create("threshold:p_min=0.5").keep_drafting(3, row, depth)
            assert not draft_length.create("threshold:p_min=0.51").keep_drafting(3, row, depth)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("threshhold", "did you mean threshold"),
        ("fixed:m=3", "no option 'm'.*n"),
        ("fixed:n=x", "type int"),
        ("fixed:n=2.5", "type int"),
        ("fixed:n=-1", "0 or more"),
        ("threshold:p_min=1.5", "between 0 and 1"),
        ("threshold:p_min=nan", "between 0 and 1"),
        ("threshold:p_min", "no option"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draft_length.create(spec)
