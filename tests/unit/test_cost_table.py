"""What forwards are taken to cost: by rows, by context, and after what was seen."""

from __future__ import annotations

import json
import random

import pytest

from lucebox.core import RoundResult
from lucebox.draft_length.costs import CostTable
from lucebox.draft_length.forward_costs import ForwardCosts, Pace

STEPS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 512)
MEASURED = [
    (1, 0, 28.0),
    (2, 0, 48.0),
    (3, 0, 64.0),
    (4, 0, 72.0),
    (5, 0, 109.0),
    (8, 0, 138.0),
    (16, 0, 218.0),
]


def forwards() -> ForwardCosts:
    costs = ForwardCosts(STEPS)
    costs.set(MEASURED)
    return costs


def test_measured_points_are_kept_and_steps_respected() -> None:
    costs = forwards()
    for n, _, ms in MEASURED:
        assert costs.ms(n) == pytest.approx(ms)
    assert costs.ms(7) == costs.ms(8)  # computed as 8 rows
    assert costs.ms(9) == costs.ms(12) == pytest.approx((138 + 218) / 2)
    assert costs.ms(6) == pytest.approx(109 + 29 / 3)
    assert costs.ms(32) == pytest.approx(218 + 16 * 10)  # on along the last two points
    assert costs.ms(200) > costs.ms(33) > costs.ms(32)
    assert costs.ms(0) == 0.0


def test_more_rows_never_cost_less() -> None:
    costs = ForwardCosts(STEPS)
    costs.set(
        [(1, 0, 44.0), (2, 0, 82.0), (3, 0, 55.0), (4, 0, 48.0), (8, 0, 74.0), (12, 0, 212.0), (16, 0, 172.0)]
    )
    ms = [costs.ms(n) for n in range(1, 40)]
    assert ms == sorted(ms)
    assert costs.ms(2) == 48.0  # what took longer than four rows was disturbed
    generator = random.Random(1)
    for _ in range(300):
        costs.observe(generator.choice([1, 2, 3, 5, 16]), 100, generator.uniform(10, 300))
    ms = [costs.ms(n, 50) for n in range(1, 39)]
    assert ms == sorted(ms)


def test_context_costs_each_row_count_its_own() -> None:
    costs = ForwardCosts(STEPS)
    costs.set([(1, 0, 48.0), (4, 0, 118.0), (8, 0, 204.0), (1, 4096, 72.0), (8, 4096, 417.0)])
    assert costs.ms(1, 4096) == pytest.approx(72.0)
    assert costs.ms(8, 2048) == pytest.approx(204 + 213 / 2)
    assert 118 + 24 < costs.ms(4, 4096) < 118 + 213


def test_before_anything_is_measured_nothing_costs_anything() -> None:
    costs = ForwardCosts(STEPS)
    assert costs.is_empty
    assert costs.ms(3) == 0.0
    costs.observe(1, 10, 20.0)
    assert costs.ms(1) == pytest.approx(20.0)
    assert costs.ms(3) == pytest.approx(40.0)  # a guess, until there is a second point
    assert costs.ms(200) > costs.ms(3)


def test_a_single_slow_forward_changes_nothing() -> None:
    costs = forwards()
    for i in range(40):
        costs.observe(1, 0, 28.0 * (50.0 if i % 5 == 0 else 1.0))
    assert costs.ms(1) == pytest.approx(28.0, rel=0.02)
    assert costs.ms(8) == pytest.approx(138.0, rel=0.02)


def test_a_machine_that_gets_slower_gets_slower_in_everything() -> None:
    costs = forwards()
    for _ in range(100):
        costs.observe(1, 0, 56.0)
    assert costs.ms(1) == pytest.approx(56.0, rel=0.05)
    assert costs.ms(8) / costs.ms(1) > 138.0 / 56.0
    for _ in range(200):
        costs.observe(8, 0, 276.0)
        costs.observe(1, 0, 56.0)
    assert costs.ms(8) == pytest.approx(276.0, rel=0.05)


def test_models_on_one_device_share_its_pace() -> None:
    pace = Pace()
    target, draft = ForwardCosts(STEPS, pace), ForwardCosts(STEPS, pace)
    target.set(MEASURED)
    draft.set([(1, 0, 12.0)])
    for _ in range(100):
        target.observe(1, 0, 56.0)
    assert 16.0 < draft.ms(1) < 24.0


def test_a_point_that_was_not_calibrated_is_learned() -> None:
    costs = forwards()
    for _ in range(3):
        costs.observe(64, 0, 500.0)
    assert costs.ms(64) == pytest.approx(500.0, rel=0.01)


def table() -> CostTable:
    costs = CostTable(STEPS, "model".__eq__)
    costs.verify.set(MEASURED)
    costs.draft.set([(1, 0, 12.0), (2, 0, 16.0), (16, 0, 90.0), (64, 0, 230.0)])
    return costs


def test_drafts_of_a_model_cost_forwards_and_catching_up_rows() -> None:
    costs = table()
    assert costs.draft_ms("model", 4, 100) == pytest.approx(48.0)
    assert costs.catch_up_ms("model", 0, 100) == 0.0
    assert costs.catch_up_ms("model", 1, 100) == pytest.approx(4.0)
    assert costs.catch_up_ms("model", 15, 100) == pytest.approx(78.0)
    assert costs.catch_up_ms("model", 2000, 2000) > 3 * costs.catch_up_ms("model", 500, 2000)


def test_other_drafters_cost_what_their_proposals_took() -> None:
    costs = table()
    assert costs.draft_ms("suffix", 8, 100) == 0.0
    for ms in (0.03, 0.02, 9.0, 0.03, 0.02, 0.03):
        costs.observe_proposal("suffix", 0, ms)
    assert 0.01 < costs.draft_ms("suffix", 8, 100) < 0.05
    assert costs.draft_ms("suffix", 0, 100) == 0.0
    assert costs.catch_up_ms("suffix", 1000, 2000) == 0.0


def test_rounds_teach_what_drafting_costs() -> None:
    costs = table()
    for _ in range(150):
        costs.update(RoundResult(0, "model", 3, 3, 60.0, 72.0, 4, 100, 3, 0, 4, 3))
    assert costs.draft_ms("model", 1, 100) == pytest.approx(20.0, rel=0.1)
    assert costs.verify_ms(4, 100) == pytest.approx(72.0, rel=0.1)


def test_it_survives_being_written_down() -> None:
    costs = table()
    copy = CostTable(STEPS, "model".__eq__)
    copy.restore(json.loads(json.dumps(costs.to_dict())))
    for n in (1, 3, 7, 16, 100):
        assert copy.verify_ms(n, 500) == pytest.approx(costs.verify_ms(n, 500))
        assert copy.catch_up_ms("model", n, 500) == pytest.approx(costs.catch_up_ms("model", n, 500))


@pytest.mark.parametrize("ms", [0.0, 5e-324, 1e9])
def test_whatever_was_written_down_is_learned_from(ms: float) -> None:
    """A file may hold any number; a round that took another time must not fail for it."""
    costs = table()
    costs.restore(
        {"verify": {"points": {"1": ms}, "slopes": {"1": ms}}, "draft": {"points": {}, "slopes": {}}}
    )
    for _ in range(20):
        for n_rows in (1, 3):
            costs.verify.observe(n_rows, 4096, 30.0)
    assert 0.0 < costs.verify_ms(1, 0) < float("inf")
    assert 0.0 < costs.verify_ms(5, 4096) < float("inf")


@pytest.mark.parametrize(
    "values",
    [
        {},
        [],
        {"verify": {"points": {"1": 1e300}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
        {"verify": {"points": {}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
        {"verify": {"points": {"x": 1.0}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
        {"verify": {"points": {"1": -1.0}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
        {"verify": {"points": {"0": 1.0}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
        {"verify": {"points": {"1": None}, "slopes": {}}, "draft": {"points": {}, "slopes": {}}},
    ],
)
def test_what_it_never_wrote_is_refused_and_changes_nothing(values: object) -> None:
    costs = table()
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        costs.restore(values)  # type: ignore[arg-type]
    assert costs.verify_ms(4, 0) == pytest.approx(72.0)
