"""`lucebox simulate`: what guessing would bring, from acceptance rates and costs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lucebox import flags
from lucebox.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from lucebox.research.costs import CostModel
    from lucebox.research.simulator import Schedule

HELP = "compute what guessing would bring, from acceptance rates and costs"
DEFAULT_C = 0.1
WIDTH = 120  # columns, where the output is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--alpha",
        metavar="A,B,…",
        default="0.5,0.6,0.7,0.8,0.9",
        help="probabilities that a drafted token is accepted [default: %(default)s]",
    )
    costs = parser.add_mutually_exclusive_group()
    costs.add_argument(
        "--c",
        metavar="X",
        help="a drafted token costs X of a plain step, and verifying a draft costs one step "
        f"[default: {DEFAULT_C}]",
    )
    costs.add_argument(
        "--costs",
        metavar="FILE",
        help='measured costs: JSON {"verify_ms": {"1": 38.0, "2": 65.0, …}, "draft_ms": 20.0}, by rows to '
        "verify, or a file that an engine measured, costs/*.json in the cache folder",
    )
    parser.add_argument(
        "--max-length", metavar="N", default="16", help="longest draft looked at [default: %(default)s]"
    )
    parser.add_argument(
        "--hit-rate",
        metavar="X",
        default="0.9",
        help="how often SSD has the next draft ready [default: %(default)s]",
    )
    parser.add_argument(
        "--beta",
        metavar="X",
        default="0.5",
        help="how often the draft model's second guess is right where the first was not, for Lucebox's own "
        "overlap [default: %(default)s]",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw it, too: FILE.png or FILE.svg")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from rich.console import Console

    from lucebox.research import plots
    from lucebox.research.costs import CostModel
    from lucebox.research.simulator import check_alpha

    alphas = [_number("alpha", text) for text in arguments.alpha.split(",")]
    for alpha in alphas:
        check_alpha(alpha)
    n_max, hit_rate = flags.integer(arguments, "max_length", 1, 256), _number("hit-rate", arguments.hit_rate)
    if arguments.costs is not None:
        costs = CostModel.read(arguments.costs)
    else:
        costs = CostModel.textbook(DEFAULT_C if arguments.c is None else _number("c", arguments.c))
    path = None if arguments.plot is None else plots.check_path(arguments.plot)
    beta = _number("beta", arguments.beta)
    tables = [_lengths(alphas, costs, n_max), _schedules(alphas, costs, n_max, hit_rate, beta)]
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(*tables, sep="\n")
    if path is not None:
        plots.plot_speed_up(path, alphas, costs, n_max, hit_rate, beta)
        console.print(f"drawn to {path}", soft_wrap=True, highlight=False, markup=False)
    return 0


def _lengths(alphas: list[float], costs: CostModel, n_max: int) -> Table:
    """Serial drafting: a row for each draft length, a column for each acceptance rate."""
    from lucebox.research.simulator import Serial

    columns = [[Serial(n).speed_up(alpha, costs) for n in range(n_max + 1)] for alpha in alphas]
    best = [max(range(n_max + 1), key=column.__getitem__) for column in columns]
    table = _table("Speed-up of serial drafting (* the best length)", "γ", alphas)
    table.add_column("round / plain step", justify="right")
    for n in range(n_max + 1):
        round_ms = costs.draft_ms("", n) + costs.verify_ms(n + 1)
        cells = [
            f"[bold green]{column[n]:.3f}*[/]" if n == at else f"{column[n]:.3f} "
            for column, at in zip(columns, best, strict=True)
        ]
        table.add_row(str(n), *cells, f"{round_ms / costs.verify_ms(1):.3g}")
    return table


def _schedules(alphas: list[float], costs: CostModel, n_max: int, hit_rate: float, beta: float) -> Table:
    """Serial and overlapped drafting, each at its best length."""
    from lucebox.research.overlapped import best_overlapped
    from lucebox.research.simulator import Dsi, best_pearl, best_serial, best_ssd

    lengths, two_or_more = range(1, n_max + 1), range(2, max(2, n_max) + 1)
    rows: dict[str, list[Schedule]] = {
        "serial": [best_serial(alpha, costs, range(n_max + 1)) for alpha in alphas],
        "PEARL": [best_pearl(alpha, costs, two_or_more) for alpha in alphas],
        f"overlap, β = {beta:g}": [best_overlapped(alpha, costs, beta, lengths) for alpha in alphas],
        f"SSD, h = {hit_rate:g}": [best_ssd(alpha, costs, hit_rate, lengths) for alpha in alphas],
        "SSD, h = 1": [best_ssd(alpha, costs, 1.0, lengths) for alpha in alphas],
        "DSI, L = 1": [Dsi(1) for _ in alphas],
    }
    table = _table("Speed-up at the best length (in brackets)", "schedule", alphas)
    for name, schedules in rows.items():
        cells = []
        for alpha, schedule in zip(alphas, schedules, strict=True):
            gamma = getattr(schedule, "gamma", None)
            cells.append(f"{schedule.speed_up(alpha, costs):.3f}" + ("" if gamma is None else f" ({gamma})"))
        table.add_row(name, *cells)
    return table


def _table(title: str, first: str, alphas: list[float]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.add_column(first, justify="left", no_wrap=True)
    for alpha in alphas:
        table.add_column(f"α = {alpha:g}", justify="right")
    return table


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--{flag} must be a number, not {text!r}") from None
