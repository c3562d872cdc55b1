"""The cost models against the published tables, against themselves round by round, and their input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lucebox.errors import ConfigError
from lucebox.research.costs import CostModel
from lucebox.research.simulator import (
    Dsi,
    Pearl,
    Schedule,
    Serial,
    Ssd,
    best_pearl,
    best_serial,
    best_ssd,
    expected_tokens,
    operations_factor,
)

MEASURED = CostModel({1: 38.0, 2: 65.0, 3: 87.0, 4: 97.0, 5: 148.0, 8: 188.0, 16: 296.0}, 12.0)


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speed_up"),
    [
        (0.6, 2, "1.53", "1.96"),
        (0.7, 3, "1.58", "2.53"),
        (0.8, 2, "1.23", "2.44"),
        (0.8, 5, "1.63", "3.69"),
        (0.9, 2, "1.11", "2.71"),
        (0.9, 10, "1.60", "6.86"),
    ],
)
def test_table_1_of_leviathan(alpha: float, gamma: int, operations: str, speed_up: str) -> None:
    assert f"{operations_factor(alpha, gamma):.2f}" == operations
    assert f"{Serial(gamma).speed_up(alpha, CostModel.textbook(0.0)):.2f}" == speed_up


@pytest.mark.parametrize(
    ("alpha", "c", "gamma", "speed_up"),
    [
        (0.8, 0.01, 14, "4.232"),
        (0.8, 0.05, 8, "3.092"),
        (0.8, 0.1, 6, "2.470"),
        (0.8, 0.2, 4, "1.868"),
        (0.8, 0.4, 2, "1.356"),
        (0.9, 0.05, 13, "4.674"),
    ],
)
def test_the_best_draft_length(alpha: float, c: float, gamma: int, speed_up: str) -> None:
    costs = CostModel.textbook(c)
    best = best_serial(alpha, costs)
    assert best.gamma == gamma
    assert f"{best.speed_up(alpha, costs):.3f}" == speed_up


@pytest.mark.parametrize(
    ("alpha", "serial", "pearl", "ssd", "oracle"),
    [
        (0.5, "1.458", "1.332", "1.875", "1.999"),
        (0.8, "2.470", "2.604", "4.155", "4.571"),
        (0.9, "3.431", "4.106", "6.238", "6.862"),
    ],
)
def test_overlapped_drafting(alpha: float, serial: str, pearl: str, ssd: str, oracle: str) -> None:
    costs = CostModel.textbook(0.1)
    found = [
        best_serial(alpha, costs),
        Pearl(10),
        best_ssd(alpha, costs, 0.9) if alpha == 0.5 else Ssd(10, 0.9),
        Ssd(10, 1.0),
    ]
    assert [f"{schedule.speed_up(alpha, costs):.3f}" for schedule in found] == [serial, pearl, ssd, oracle]


@pytest.mark.parametrize(
    ("lookahead", "expected"),
    [
        (1, ["1.818", "3.571", "5.263"]),
        (2, ["1.765", "3.462", "5.135"]),
        (3, ["1.707", "3.352", "5.009"]),
    ],
)
def test_dsi(lookahead: int, expected: list[str]) -> None:
    costs = CostModel.textbook(0.1)
    assert [f"{Dsi(lookahead).speed_up(alpha, costs):.3f}" for alpha in (0.5, 0.8, 0.9)] == expected


def test_overlap_loses_to_tuned_serial_drafting_where_little_is_accepted() -> None:
    costs = CostModel.textbook(0.1)
    assert best_pearl(0.3, costs).speed_up(0.3, costs) < best_serial(0.3, costs).speed_up(0.3, costs)
    assert best_pearl(0.9, costs).speed_up(0.9, costs) > best_serial(0.9, costs).speed_up(0.9, costs)


@pytest.mark.parametrize("costs", [CostModel.textbook(0.1), MEASURED], ids=["textbook", "measured"])
@pytest.mark.parametrize("alpha", [0.3, 0.8])
@pytest.mark.parametrize(
    "schedule", [Serial(0), Serial(4), Pearl(2), Pearl(6), Ssd(4, 0.7), Dsi(1), Dsi(3)], ids=str
)
def test_drawn_rounds_tend_to_the_closed_form(schedule: Schedule, alpha: float, costs: CostModel) -> None:
    run = schedule.simulate(alpha, costs, 40_000, seed=1)
    found = run.n_tokens / run.ms * costs.verify_ms(1)
    assert found == pytest.approx(schedule.speed_up(alpha, costs), rel=0.015)
    assert schedule.simulate(alpha, costs, 1000, seed=7) == schedule.simulate(alpha, costs, 1000, seed=7)


def test_guessing_pays_iff_more_is_accepted_than_it_costs() -> None:
    for c in (0.2, 0.5, 0.8):
        costs = CostModel.textbook(c)
        assert best_serial(c - 0.01, costs) == Serial(0)
        assert best_serial(c + 0.01, costs).gamma > 0


def test_a_table_moves_the_best_length_to_a_step_of_the_kernels() -> None:
    """A fifth row costs half as much as the four before it, which no textbook's c says."""
    assert best_serial(0.8, MEASURED) == Serial(0)
    assert best_serial(0.95, MEASURED) == Serial(3)
    assert best_serial(0.95, CostModel.textbook(MEASURED.c)).gamma > 3
    assert Serial(3).speed_up(0.95, MEASURED) == pytest.approx(expected_tokens(0.95, 3) * 38 / (3 * 12 + 97))


def test_costs_between_and_beyond_what_was_measured() -> None:
    assert [MEASURED.verify_ms(rows) for rows in (1, 4, 6, 32)] == pytest.approx([38, 97, 148 + 40 / 3, 592])
    assert MEASURED.draft_ms("model", 3) == 36.0
    assert CostModel.textbook(0.2).c == 0.2


def test_costs_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"verify_ms": {"1": 38, "2": 65}, "draft_ms": 12}))
    assert CostModel.read(path) == CostModel({1: 38.0, 2: 65.0}, 12.0)


def test_costs_come_from_a_calibration(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    target = {"points": {"1": 38.0, "4": 97.0}, "slopes": {"1": 0.01}}
    measured = {"verify": target, "draft": {"points": {"1": 12.0}, "slopes": {}}}
    path.write_text(json.dumps({"key": {"machine": "x86_64"}, "costs": measured}))
    costs = CostModel.read(path)
    assert costs.verify == pytest.approx({1: 38.0, 4: 97.0})
    assert costs.draft == pytest.approx(12.0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"costs": {"verify": {"points": {"1": 3}}, "draft": {"points": {}}}}',
        '{"verify_ms": {"one": 3}, "draft_ms": 1}',
        '{"verify_ms": {"2": 3}, "draft_ms": 1}',
        '{"verify_ms": {"1": 3, "0": 3}, "draft_ms": 1}',
        '{"verify_ms": {"1": -3}, "draft_ms": 1}',
        '{"verify_ms": {"1": NaN}, "draft_ms": 1}',
        '{"verify_ms": {"1": 3}, "draft_ms": -1}',
        '{"verify_ms": {"1": 3}, "draft_ms": NaN}',
        '{"verify_ms": {"1": 3}, "draft_ms": ' + "9" * 400 + "}",
        '{"verify_ms": {"1": 3, "' + "9" * 400 + '": 3}, "draft_ms": 1}',
        '{"verify_ms": ' + "[" * 100_000,
    ],
)
def test_a_file_without_costs_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(content)
    with pytest.raises(ConfigError):
        CostModel.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        CostModel.read(tmp_path / "none.json")


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5, float("nan")])
def test_impossible_rates_are_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Serial(3).speed_up(alpha, MEASURED)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Dsi(3).simulate(alpha, MEASURED, 10, seed=1)


def test_impossible_schedules_are_refused() -> None:
    for make in (lambda: Pearl(1), lambda: Ssd(0, 0.5), lambda: Dsi(0), lambda: Serial(-1)):
        with pytest.raises(ConfigError, match="or more"):
            make()
    with pytest.raises(ConfigError, match="hit rate"):
        Ssd(3, 1.5)
