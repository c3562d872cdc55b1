"""What is measured when an engine is loaded: which forwards, in which time, and what they leave behind."""

from __future__ import annotations

import pytest

from lucebox.engine.calibration import DRAFT_ROWS, TARGET_ROWS, calibrate
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows, Want


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TimedModel:
    """A model of which a forward only takes its time: the first one of all, ten times as long."""

    n_batch = 512

    def __init__(self, clock: Clock, row_ms: float, n_ctx: int = 8192) -> None:
        self.n_ctx = n_ctx
        self.cache = Cache(n_ctx, 1)
        self.wanted: list[int] = []
        self._clock = clock
        self._row_ms = row_ms

    def ms(self, n_rows: int, n_kv: int) -> float:
        return self._row_ms * n_rows + 0.001 * n_kv

    def forward(self, rows: Rows) -> None:
        assert (rows.positions[0], len(rows)) == (self.cache.length(0), len(rows))
        self.cache.reserve(rows)
        factor = 1.0 if self.wanted else 10.0
        self.wanted.append(int((rows.wants == Want.LOGITS).sum()))
        self._clock.now_s += factor * self.ms(len(rows), int(rows.positions[0])) / 1000.0


def test_every_point_is_measured_where_there_is_time() -> None:
    clock = Clock()
    target, draft = TimedModel(clock, 2.0), TimedModel(clock, 0.5)
    fractions: list[float] = []
    of_target, of_draft = calibrate(target, draft, on_progress=fractions.append, clock=clock)
    assert {(n, n_kv > 0) for n, n_kv, _ in of_target} == {
        *((n, False) for n in TARGET_ROWS),
        (1, True),
        (8, True),
    }
    assert {(n, n_kv > 0) for n, n_kv, _ in of_draft} == {*((n, False) for n in DRAFT_ROWS), (1, True)}
    for n, n_kv, ms in of_target:
        assert ms == pytest.approx(target.ms(n, n_kv))
    for n, n_kv, ms in of_draft:
        assert ms == pytest.approx(draft.ms(n, n_kv))
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert set(target.wanted) == set(TARGET_ROWS)  # verifying needs the logits of all rows
    assert set(draft.wanted) == {1}


@pytest.mark.parametrize("row_ms", [60.0, 200.0, 2000.0])
def test_slow_machines_measure_less_and_what_tells_most(row_ms: float) -> None:
    clock = Clock()
    target, draft = TimedModel(clock, row_ms), TimedModel(clock, row_ms / 3)
    of_target, of_draft = calibrate(target, draft, clock=clock, budget_s=2.5)
    vital_s = (10 + 1) * (target.ms(1, 0) + draft.ms(1, 0)) / 1000.0
    assert clock.now_s < max(3.0, vital_s + 0.001)
    assert of_target[0] == (1, 0, pytest.approx(row_ms))
    assert of_draft[0] == (1, 0, pytest.approx(row_ms / 3))
    assert len(of_target) < len(TARGET_ROWS) + 2


def test_caches_are_empty_afterwards() -> None:
    clock = Clock()
    models = TimedModel(clock, 2.0), TimedModel(clock, 0.5)
    calibrate(*models, clock=clock)
    for model in models:
        model.cache.check_integrity()
        assert model.cache.length(0) == 0
        assert model.cache.n_free == model.cache.n_cells


def test_a_forward_that_fails_leaves_nothing_behind() -> None:
    clock = Clock()
    target = TimedModel(clock, 2.0)

    def forward(rows: Rows) -> None:
        target.cache.reserve(rows)
        if rows.positions[0] > 0:
            raise RuntimeError("lost the device")

    target.forward = forward  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="lost the device"):
        calibrate(target, None, clock=clock)
    target.cache.check_integrity()
    assert target.cache.n_free == target.cache.n_cells


@pytest.mark.parametrize("n_ctx", [4, 16, 64, 512])
def test_small_contexts_have_no_long_ones(n_ctx: int) -> None:
    clock = Clock()
    of_target, of_draft = calibrate(TimedModel(clock, 2.0, n_ctx), None, clock=clock)
    assert of_draft == []
    assert {n for n, _, _ in of_target} == {n for n in TARGET_ROWS if n <= n_ctx}
    assert all(n_kv == 0 for _, n_kv, _ in of_target)
