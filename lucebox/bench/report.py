"""How figures are shown: a table for each workload, one over all of them, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from msgspec import to_builtins
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lucebox.bench.arms import PLAIN, Arm
from lucebox.bench.figures import Figures, figures
from lucebox.bench.spec import Sample
from lucebox.bench.workloads import Workload

F16_MARK = "F16 (dequantised)"
MIN_WIDTH = 150  # columns, where the output is no terminal
_MAX_POSITIONS = 5
_HEADINGS = (
    *("arm", "tok/s", "wall s", "prompt s", "speed-up", "first", "vs best fixed", "accepted", "length"),
    *("by position", "drafting", "text", "check"),
)
_NOTES = (
    "tok/s, wall s, prompt s: medians over requests; wall s is the whole request, draft prefill included.",
    "speed-up: by wall time beside plain decoding of the same round, median over rounds; where an answer is "
    "longer or shorter than plain decoding's, its time behind the first token is scaled to as many tokens.",
    "first: the same in the round that warmed up, which counts nowhere else. vs best fixed: 1 − regret.",
    "accepted: of drafted tokens. length: mean acceptance length, tokens per drafted round with the bonus. "
    "by position: share of drafted rounds. drafting: share of wall time.",
    "text: answers equal to plain decoding's, and the first token at which one is not (near ties may change "
    "places). check: answers that are what was asked for.",
)


@dataclass(slots=True)
class Report:
    """What was measured so far. `title` and `configuration` say on what; `mark` stands on every table."""

    title: str
    configuration: Mapping[str, object]
    arms: Sequence[Arm]
    workloads: list[Workload] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    agreement: float | None = None
    mark: str = ""

    def figures_of(self, workload: Workload) -> list[Figures]:
        samples = [s for s in self.samples if s.workload == workload.name]
        is_greedy = all(case.temperature == 0.0 for case in workload.cases)
        return figures(samples, self.arms, is_greedy=is_greedy)

    def print(self, console: Console) -> None:
        """The tables of all workloads that have figures, and what their columns mean."""
        measured = [(workload, lines) for workload in self.workloads if (lines := self.figures_of(workload))]
        console.print(self.title)
        for workload, lines in measured:
            console.print(_table(workload, lines, self.mark))
        if len(measured) > 1:
            console.print(_overview(measured))
        if self.agreement is not None:
            console.print(
                f"The draft's first greedy guess is the target's own token at {self.agreement:.3f} of places."
            )
        if measured:
            for note in _NOTES:
                console.print(note, style="dim")
        else:
            console.print("Nothing was measured.")

    def as_json(self) -> dict[str, object]:
        """Configuration, figures and samples, of plain data."""
        return {
            "configuration": dict(self.configuration),
            "mark": self.mark,
            "agreement": self.agreement,
            "workloads": [_workload_json(workload, self.figures_of(workload)) for workload in self.workloads],
            "samples": [asdict(s) | {"timings": to_builtins(s.timings)} for s in self.samples],
        }


def console() -> Console:
    """stdout; wide enough for the tables where it is no terminal. Names with brackets are no markup."""
    found = Console(markup=False)
    return found if found.is_terminal else Console(markup=False, width=max(found.width, MIN_WIDTH))


def _workload_json(workload: Workload, lines: Sequence[Figures]) -> dict[str, object]:
    return {
        "name": workload.name,
        "cases": [
            {"name": c.name, "n_prompt": len(c.prompt), "n_tokens": c.n_tokens, "temperature": c.temperature}
            for c in workload.cases
        ],
        "arms": [asdict(line) | {"regret": line.regret} for line in lines],
    }


def _table(workload: Workload, lines: Sequence[Figures], mark: str) -> Table:
    cases = workload.cases
    n_prompt = sum(len(case.prompt) for case in cases) / len(cases)
    temperature = max(case.temperature for case in cases)
    n_rounds = max(1, lines[0].n_samples // len(cases))
    table = Table(
        title=f"{workload.name}: {len(cases)} {'prompt' if len(cases) == 1 else 'prompts'} of {n_prompt:.0f} "
        f"tokens, up to {cases[0].n_tokens} generated, temperature {temperature:g}, "
        f"medians of {n_rounds} {'round' if n_rounds == 1 else 'rounds'}" + (mark and f", {mark}"),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in _HEADINGS:
        table.add_column(
            heading,
            justify="left" if heading in ("arm", "check") else "right",
            no_wrap=heading in ("arm", "by position"),
        )
    for line in lines:
        table.add_row(*_row(line))
    return table


def _row(line: Figures) -> list[str]:
    row = [
        line.arm,
        f"{line.tokens_per_second:.1f}",
        f"{line.wall_ms / 1e3:.2f}",
        f"{line.prompt_ms / 1e3:.2f}",
    ]
    row += [f"{line.speedup:.2f}", "-" if line.first_speedup is None else f"{line.first_speedup:.2f}"]
    row.append(f"{line.ratio_to_best_fixed:.2f}" + (" best" if line.arm == line.best_fixed else ""))
    if line.per_position_acceptance:
        shown = " ".join(
            f"{share:.2f}".lstrip("0") for share in line.per_position_acceptance[:_MAX_POSITIONS]
        )
        more = " …" if len(line.per_position_acceptance) > _MAX_POSITIONS else ""
        row += [f"{line.acceptance_rate:.0%}", f"{line.mean_acceptance_length:.2f}", shown + more]
        row.append(f"{line.draft_share:.0%}")
    else:
        row += ["-"] * 4
    return [*row, _text(line), _check(line)]


def _text(line: Figures) -> str:
    if line.arm == PLAIN.name or line.n_same_text is None:
        return "-"
    same = f"{line.n_same_text}/{line.n_samples}"
    return same if line.first_difference is None else f"{same} @{line.first_difference}"


def _check(line: Figures) -> str:
    if line.problems is None:
        return "-"
    passed = f"{line.n_samples - len(line.problems)}/{line.n_samples}"
    return f"{passed}: {line.problems[0]}" if line.problems else passed


def _overview(measured: Sequence[tuple[Workload, Sequence[Figures]]]) -> Table:
    """Speed-ups of every arm on every workload."""
    table = Table(
        title="speed-up by wall time",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    names = list(dict.fromkeys(line.arm for _, lines in measured for line in lines if line.arm != PLAIN.name))
    table.add_column("workload")
    for name in names:
        table.add_column(name, justify="right")
    for workload, lines in measured:
        speedups = {line.arm: f"{line.speedup:.2f}" for line in lines}
        table.add_row(workload.name, *(speedups.get(name, "-") for name in names))
    return table
