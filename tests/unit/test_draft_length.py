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
    assert draft_length.names() == ["adaedl", "auto", "fixed", "goodput", "svip", "threshold"]


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


def test_entropy_decides_for_adaedl_and_svip() -> None:
    flat = Distribution(4, np.full(4, 0.25, np.float32))  # log 4 = 1.386 nats
    sure = Distribution(9, np.array([0.99, 0.01], np.float32), np.array([2, 7], np.int32))  # 0.056 nats
    for spec in ("adaedl", "svip", "adaedl:kappa=0.2,threshold=0.48", "svip:h=1.17"):
        controller = draft_length.create(spec)
        assert not controller.keep_drafting(3, flat, 0)
        assert controller.keep_drafting(3, sure, 5)
    for spec in ("adaedl:kappa=0.2,threshold=0.47", "svip:h=1.18"):  # 1 - sqrt(0.277), sqrt(1.386)
        assert draft_length.create(spec).keep_drafting(3, flat, 0)


def measured(verify: dict[int, float], draft_ms: float) -> CostTable:
    costs = CostTable(needs_model="model".__eq__)
    costs.verify.set([(n, 0, ms) for n, ms in verify.items()])
    costs.draft.set([(1, 0, draft_ms)])
    return costs


def test_goodput_drafts_while_a_token_pays_for_itself() -> None:
    state = SequenceState(3, 10, 100, ("model",))
    flat, steep = measured({1: 10.0, 9: 10.4}, 0.5), measured({1: 10.0, 9: 90.0}, 0.5)
    right, wrong = draft_length.create("goodput"), draft_length.create("goodput")
    for _ in range(100):
        right.update(RoundResult(3, "model", 4, 4, 1.0, 5.0, 5, 10, 4))
        wrong.update(RoundResult(3, "model", 4, 0, 1.0, 5.0, 5, 10, 4))
    assert right.plan([state], flat)[3] == Plan("model", 8)
    assert right.plan([state], steep)[3].n_max == 0
    assert wrong.plan([state], flat)[3].n_max == 0
    for _ in range(1000):
        wrong.update(RoundResult(3, "", 0, 0, 0.0, 10.0, 1, 10))
    assert wrong.plan([state], flat)[3].n_max > 0  # what is not seen is forgotten


def test_goodput_follows_the_formula() -> None:
    """alpha = .7, t_draft = 1, t_verify = 10 + 0.5 k: 1.70/11.5, 2.19/13, 2.533/14.5, 2.773/16."""
    costs = measured({1: 10.0, 9: 14.0}, 1.0)
    plan = draft_length.create("goodput").plan([SequenceState(3, 10, 100, ("model",))], costs)[3]
    speeds = [sum(0.7**i for i in range(k + 1)) / (10 + 1.5 * k) for k in range(9)]
    assert plan.n_max == max(range(9), key=speeds.__getitem__) == 3


@pytest.mark.parametrize(
    ("spec", "n", "shape"),
    [
        ("fixed:n=9,shape=3x2", 9, (3, 2)),
        ("fixed:shape=2", 4, (2,)),
        ("threshold:n=6,shape=1x2x1", 6, (1, 2, 1)),
        ("fixed", 4, ()),
    ],
)
def test_shapes_of_trees(spec: str, n: int, shape: tuple[int, ...]) -> None:
    assert draft_length.create(spec).plan(BATCH[:1], COSTS)[3] == Plan("model", n, shape)


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
        ("fixed:shape=0x2", "no tree"),
        ("fixed:shape=3x", "no tree"),
        ("fixed:shape=20x20", "more than 255"),
        ("fixed:shape=" + "x".join(["999"] * 200), "more than 255"),
        ("fixed:shape=" + "x".join(["1"] * 256), "more than 255"),
        ("fixed:shape=" + "x".join(["9"] * 50_000), "characters, more than"),
        ("fixed:shape=٣x٢", "no tree"),
        ("threshold:p_min=" + "9" * 400, "between 0 and 1"),
        ("adaedl:kappa=-1", "0 or more"),
        ("adaedl:kappa=inf", "0 or more"),
        ("adaedl:threshold=2", "between 0 and 1"),
        ("adaedl:n=-1", "adaedl: n must be"),
        ("svip:h=-0.1", "0 or more"),
        ("svip:h=nan", "0 or more"),
        ("goodput:n=-1", "0 or more"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draft_length.create(spec)
