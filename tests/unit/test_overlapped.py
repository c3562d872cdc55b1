"""The simulated schedule of the engine's own overlap: its closed form, its rounds, and its bounds."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lucebox.cli.main import main
from lucebox.engine.timeline import DRAFT, TARGET, Span
from lucebox.errors import ConfigError
from lucebox.research.costs import CostModel
from lucebox.research.overlapped import Overlapped, best_overlapped
from lucebox.research.plots import plot_timelines
from lucebox.research.simulator import Serial, Ssd

MEASURED = CostModel({1: 38.0, 2: 65.0, 3: 87.0, 4: 97.0, 5: 148.0, 8: 188.0, 16: 296.0}, 12.0)
COSTS = [CostModel.textbook(0.1), CostModel.textbook(0.3), CostModel.textbook(1.5), MEASURED]


@pytest.mark.parametrize("costs", COSTS, ids=["0.1", "0.3", "1.5", "measured"])
@pytest.mark.parametrize("schedule", [Overlapped(1), Overlapped(4), Overlapped(4, 0.9, 4)], ids=str)
@pytest.mark.parametrize("alpha", [0.3, 0.8, 0.95])
def test_drawn_rounds_tend_to_the_closed_form(schedule: Overlapped, alpha: float, costs: CostModel) -> None:
    run = schedule.simulate(alpha, costs, 40_000, seed=1)
    found = run.n_tokens / run.ms * costs.verify_ms(1)
    assert found == pytest.approx(schedule.speed_up(alpha, costs), rel=0.015)


@pytest.mark.parametrize("costs", COSTS, ids=["0.1", "0.3", "1.5", "measured"])
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_it_lies_between_serial_drafting_and_the_oracle(gamma: int, costs: CostModel) -> None:
    """A forward that costs more than it may bring never begins, so that nothing is lost."""
    for alpha in (0.1, 0.5, 0.8, 0.95):
        for width in (1, 4):
            found = Overlapped(gamma, 0.6, width).speed_up(alpha, costs)
            assert found >= Serial(gamma).speed_up(alpha, costs) - 1e-12
            assert found <= Ssd(gamma, 1.0).speed_up(alpha, costs) + 1e-12


def test_a_round_by_hand() -> None:
    """γ = 1, c = 0.3, β = 0: of three forwards beside the target one asks for the token behind the draft, one
    drafts behind it, and one is left over; nothing is expected of a second guess."""
    alpha, costs = 0.9, CostModel.textbook(0.3)
    expected = (1 + alpha) / (1.0 + 0.3 * (1 - alpha**2))
    assert Overlapped(1, 0.0).speed_up(alpha, costs) == pytest.approx(expected)


def test_a_draft_model_slower_than_its_target_is_no_help() -> None:
    costs = CostModel.textbook(3.0)
    assert math.isclose(Overlapped(2).speed_up(0.5, costs), Serial(2).speed_up(0.5, costs))


def test_second_guesses_and_wide_forwards_help() -> None:
    costs = CostModel.textbook(0.3)
    speed_ups = [Overlapped(4, *more).speed_up(0.5, costs) for more in ((0.2, 1), (0.6, 1), (0.6, 4))]
    assert speed_ups == sorted(speed_ups)
    assert best_overlapped(0.8, costs).speed_up(0.8, costs) > Serial(2).speed_up(0.8, costs)


def test_what_cannot_be_simulated_is_refused() -> None:
    for arguments in ((0,), (3, 1.5), (3, 0.5, 0)):
        with pytest.raises(ConfigError):
            Overlapped(*arguments)
    with pytest.raises(ConfigError, match="acceptance rate"):
        Overlapped(3).speed_up(1.0, CostModel.textbook(0.1))


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--alpha", "0.8", "--max-length", "10", "--beta", "0.3"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "overlap, β = 0.3" in line)
    best = best_overlapped(0.8, CostModel.textbook(0.1), 0.3, range(1, 11))
    assert line.split()[-2:] == [f"{best.speed_up(0.8, CostModel.textbook(0.1)):.3f}", f"({best.gamma})"]


def test_time_lines_are_drawn(tmp_path: Path) -> None:
    spans = [Span(TARGET, i, i + 0.8) for i in range(9)]
    ahead = [Span(DRAFT, i + 0.1, i + 0.5, is_ahead=True) for i in range(9)]
    path = tmp_path / "times.svg"
    plot_timelines(path, {"serial": spans, "overlapped": [*spans, *ahead], "nothing": []}, 3)
    drawn = "".join(ElementTree.parse(path).getroot().itertext())
    assert "overlapped: draft" in path.read_text() + drawn
    with pytest.raises(ConfigError):
        plot_timelines(tmp_path / "times.txt", {})
