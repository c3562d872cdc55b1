"""Plots as PNG or SVG files. matplotlib is imported when one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lucebox.engine.timeline import DRAFT, TARGET, Span
from lucebox.errors import ConfigError
from lucebox.research.costs import CostModel
from lucebox.research.overlapped import best_overlapped
from lucebox.research.replay import Replay
from lucebox.research.simulator import Dsi, Serial, best_pearl, best_serial, best_ssd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Okabe and Ito's colours, told apart by the colour-blind as well; black is for what is compared with.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#666666"
_DPI = 150
_N_ALPHAS = 93


def check_path(path: str | Path) -> Path:
    """`path` of a plot, before anything is computed for it. Raises ConfigError where none can be made."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: plots end in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")
    _figure_class()
    return path


def plot_speed_up(
    path: str | Path,
    alphas: Sequence[float],
    costs: CostModel,
    n_max: int,
    hit_rate: float,
    beta: float,
) -> None:
    """Two panels: serial drafting over draft lengths up to `n_max`, a line for each acceptance rate; and the
    schedules of lucebox.research.simulator over acceptance rates, each at its best length up to `n_max`.

    Raises ConfigError for a file name that is neither PNG nor SVG, and where matplotlib is missing.
    """
    path = check_path(path)
    figure = _figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_lengths(left, alphas, costs, n_max)
    _draw_schedules(right, costs, n_max, hit_rate, beta)
    figure.savefig(path, dpi=_DPI)


def plot_positions(path: str | Path, replays: Mapping[str, Replay]) -> None:
    """The share of rounds of which each drafted token stood, a line for each replay.

    Raises ConfigError for a file name that is neither PNG nor SVG, and where matplotlib is missing.
    """
    path = check_path(path)
    figure = _figure(6.4, 4.2)
    axes = figure.subplots()
    for i, (name, replay) in enumerate(replays.items()):
        shares = [n / replay.n_rounds for n in replay.n_accepted_at]
        label = f"{name}: {replay.mean_acceptance_length:.2f} tokens a round"
        axes.plot(range(1, len(shares) + 1), shares, "o-", color=_colour(i), label=label)
    axes.set(xlabel="token of the draft", ylabel="accepted, share of rounds", ylim=(0.0, 1.02))
    _count(axes)
    axes.legend(frameon=False)
    _tidy(axes)
    figure.savefig(path, dpi=_DPI)


def plot_timelines(path: str | Path, runs: Mapping[str, Sequence[Span]], n_rounds: int = 6) -> None:
    """When target and draft model computed, two bars for each run, from its middle on: as much time as
    `n_rounds` take the slowest.

    Raises ConfigError for a file name that is neither PNG nor SVG, and where matplotlib is missing.
    """
    path = check_path(path)
    figure = _figure(11.0, 0.9 + 0.9 * len(runs))
    axes = figure.subplots()
    labels: list[str] = []
    windows = [_window(spans, n_rounds) for spans in runs.values()]
    window_ms = max((1000.0 * (end_s - start_s) for start_s, end_s in windows), default=0.0)
    for (name, spans), (start_s, _) in zip(runs.items(), windows, strict=True):
        for party, colour in ((TARGET, _colour(0)), (DRAFT, _colour(1))):
            at = -len(labels)
            labels.append(f"{name}: {party}")
            for is_ahead, alpha in ((False, 1.0), (True, 0.6)):
                bars = [
                    (1000.0 * (span.start_s - start_s), 1000.0 * (span.end_s - span.start_s))
                    for span in spans
                    if span.party == party and span.is_ahead == is_ahead
                ]
                axes.broken_barh(bars, (at - 0.4, 0.8), color=colour, alpha=alpha, linewidth=0.0)
    axes.set(
        xlabel="milliseconds (paler: guesses for an outcome not known yet)", xlim=(0.0, window_ms or 1.0)
    )
    axes.set_yticks([-i for i in range(len(labels))], labels)
    _tidy(axes)
    figure.savefig(path, dpi=_DPI)


def _window(spans: Sequence[Span], n_rounds: int) -> tuple[float, float]:
    """Seconds: when the middle one of all verifications begins, and when the `n_rounds`th behind it does."""
    starts = sorted(span.start_s for span in spans if span.party == TARGET)
    if not starts:
        return 0.0, 0.0
    middle = len(starts) // 2
    return starts[middle], starts[min(middle + n_rounds, len(starts) - 1)]


def _draw_lengths(axes: Axes, alphas: Sequence[float], costs: CostModel, n_max: int) -> None:
    gammas = range(n_max + 1)
    ends = []
    for i, alpha in enumerate(alphas):
        speed_ups = [Serial(gamma).speed_up(alpha, costs) for gamma in gammas]
        best = int(np.argmax(speed_ups))
        axes.plot(gammas, speed_ups, ".-", color=_colour(i), markersize=4)
        axes.plot(best, speed_ups[best], "o", color=_colour(i), clip_on=False, zorder=3)
        if best:  # plain decoding, at 1, needs no label
            at = (best, speed_ups[best])
            _write(axes, f"{speed_ups[best]:.2f}×", at, (0, 6), _colour(i), ha="center", va="bottom")
        ends.append(speed_ups[-1])
    _draw_plain(axes)
    axes.set(
        title=f"Serial drafting; a drafted token costs {costs.c:.3g} plain steps",
        xlabel="draft length γ",
        ylabel="speed-up over plain decoding",
        xlim=(0, n_max),
    )
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.05 * (high - low))
    for i, (alpha, y) in enumerate(zip(alphas, _spread(ends, 0.05 * (high - low)), strict=True)):
        _write(axes, f"α = {alpha:g}", (n_max, y), (6, 0), _colour(i), ha="left", va="center")
    _count(axes)
    _tidy(axes)


def _draw_schedules(axes: Axes, costs: CostModel, n_max: int, hit_rate: float, beta: float) -> None:
    alphas = np.linspace(0.05, 0.97, _N_ALPHAS).tolist()
    lengths = range(1, n_max + 1)
    schedules = {
        "serial": [best_serial(a, costs, range(n_max + 1)).speed_up(a, costs) for a in alphas],
        "PEARL": [best_pearl(a, costs, range(2, max(n_max, 2) + 1)).speed_up(a, costs) for a in alphas],
        f"overlap, β = {beta:g}": [
            best_overlapped(a, costs, beta, lengths).speed_up(a, costs) for a in alphas
        ],
        f"SSD, hit rate {hit_rate:g}": [
            best_ssd(a, costs, hit_rate, lengths).speed_up(a, costs) for a in alphas
        ],
        "SSD, hit rate 1": [best_ssd(a, costs, 1.0, lengths).speed_up(a, costs) for a in alphas],
        "DSI, lookahead 1": [Dsi(1).speed_up(a, costs) for a in alphas],
    }
    for i, (name, speed_ups) in enumerate(schedules.items()):
        axes.plot(alphas, speed_ups, color=_colour(i), label=name)
    _draw_plain(axes)
    lowest, highest = min(map(min, schedules.values())), max(map(max, schedules.values()))
    ticks = [tick for tick in (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32) if lowest / 1.1 < tick]
    axes.set_yscale("log")
    axes.set_ylim(min(0.9, lowest / 1.1), highest * 1.1)
    axes.set_yticks([], minor=True)
    axes.set_yticks([tick for tick in ticks if tick < highest * 1.1])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(
        title=f"Each schedule at its best γ, up to {n_max}",
        xlabel="acceptance rate α",
        ylabel="speed-up over plain decoding",
        xlim=(0.0, 1.0),
    )
    axes.legend(frameon=False)
    _tidy(axes)


def _draw_plain(axes: Axes) -> None:
    axes.axhline(1.0, color=_GREY, linewidth=1.0, linestyle="--", label="plain decoding")


def _write(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], colour: str, **how: Any
) -> None:
    """`text` in `colour`, `offset` points away from a place of the data."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        color=colour,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        annotation_clip=False,
        **how,
    )


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """`heights`, raised where one is less than `gap` above the one below it."""
    spread = list(heights)
    floor = -float("inf")
    for i in sorted(range(len(heights)), key=heights.__getitem__):
        spread[i] = floor = max(heights[i], floor + gap)
    return spread


def _count(axes: Axes) -> None:
    """Whole numbers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _figure(width_in: float, height_in: float) -> Figure:
    """A figure that no window and no global state of matplotlib knows of."""
    figure: Figure = _figure_class()(figsize=(width_in, height_in), layout="constrained")
    return figure


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ConfigError("plots need the matplotlib package", remedy="pip install -e '.[plots]'") from error
    return Figure
