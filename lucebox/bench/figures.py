"""From samples to figures: medians of each arm, and ratios of what was measured side by side."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from lucebox.bench.arms import PLAIN, Arm
from lucebox.bench.spec import WARM_UP_ROUND, Sample
from lucebox.engine.timings import Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one arm reached on one workload, without the round that warmed up unless it says so.

    Medians are over requests for `tokens_per_second` (after the prompt), `wall_ms` and `prompt_ms`, and
    over rounds for ratios. A ratio over 1 is faster; `first_speedup` is that of the round that warmed up,
    None where it was not finished. `best_fixed` is the fastest arm of fixed length, plain decoding among
    them, and `regret` the share of its speed that this arm gave away. `n_same_text` counts answers equal to
    plain decoding's, and `first_difference` is the first token at which one was not; None for sampled text.
    """

    arm: str
    n_samples: int
    tokens_per_second: float
    wall_ms: float
    prompt_ms: float
    speedup: float
    first_speedup: float | None
    best_fixed: str
    ratio_to_best_fixed: float
    acceptance_rate: float
    mean_acceptance_length: float
    per_position_acceptance: list[float]
    draft_share: float
    problems: list[str] | None
    n_same_text: int | None
    first_difference: int | None

    @property
    def regret(self) -> float:
        return 1.0 - self.ratio_to_best_fixed


class Table:
    """The samples of one workload by round, case and arm."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = {(s.round, s.case, s.arm): s for s in samples}

    def of(self, arm: str, *, warm_up: bool = False) -> list[Sample]:
        """Samples of `arm` in the rounds that count, or in the one that warmed up."""
        return [s for s in self._samples.values() if s.arm == arm and (s.round == WARM_UP_ROUND) == warm_up]

    def plain_of(self, sample: Sample) -> Sample | None:
        """Plain decoding's answer to the same prompt in the same round."""
        return self._samples.get((sample.round, sample.case, PLAIN.name))

    def times(self, arm: str, *, warm_up: bool = False) -> dict[int, dict[str, float]]:
        """Milliseconds by round and case, each as if `arm` had written as many tokens as plain decoding."""
        times: dict[int, dict[str, float]] = {}
        for sample in self.of(arm, warm_up=warm_up):
            plain = self.plain_of(sample)
            if plain is not None:
                times.setdefault(sample.round, {})[sample.case] = comparable_ms(sample, plain)
        return times

    def ratio(self, arm: str, other: str, *, warm_up: bool = False) -> float | None:
        """How much faster `arm` was than `other`: the median over rounds, each the ratio of the sums over the
        cases that both have; None without a pair."""
        ours, theirs = self.times(arm, warm_up=warm_up), self.times(other, warm_up=warm_up)
        ratios = []
        for round_ in ours.keys() & theirs.keys():
            cases = ours[round_].keys() & theirs[round_].keys()
            if cases:
                sums = (sum(times[round_][case] for case in cases) for times in (theirs, ours))
                ratios.append(next(sums) / next(sums))
        return statistics.median(ratios) if ratios else None


def comparable_ms(sample: Sample, plain: Sample) -> float:
    """Wall time of `sample`, with the time behind its first token scaled to the number of tokens that `plain`
    has. Equal to the wall time where both have as many, as they do without ties at temperature 0."""
    n, n_plain = sample.timings.predicted_n - 1, plain.timings.predicted_n - 1
    if n <= 0 or n_plain <= 0:
        return sample.wall_ms
    decode_ms = sample.timings.predicted_ms
    return sample.wall_ms - decode_ms + decode_ms * n_plain / n


def figures(samples: Sequence[Sample], arms: Sequence[Arm], *, is_greedy: bool) -> list[Figures]:
    """A line per arm that has at least one sample beside plain decoding's, in the order of `arms`."""
    table = Table(samples)
    speedups = {arm.name: ratio for arm in arms if (ratio := table.ratio(arm.name, PLAIN.name)) is not None}
    fixed = [arm.name for arm in arms if arm.is_fixed and arm.name in speedups]
    if not fixed:
        return []
    best = max(fixed, key=speedups.__getitem__)
    return [_figures(table, name, speedups, best, is_greedy) for name in speedups]


def _figures(table: Table, arm: str, speedups: Mapping[str, float], best: str, is_greedy: bool) -> Figures:
    samples = table.of(arm)
    timings = reduce(add, (s.timings for s in samples), Timings())
    wall_ms = sum(s.wall_ms for s in samples)
    ratio = table.ratio(arm, best)  # None: no pair of these two was finished
    differences = [first_difference(s, table.plain_of(s)) for s in samples] if is_greedy else None
    return Figures(
        arm=arm,
        n_samples=len(samples),
        tokens_per_second=statistics.median(s.timings.predicted_per_second for s in samples),
        wall_ms=statistics.median(s.wall_ms for s in samples),
        prompt_ms=statistics.median(s.timings.prompt_ms for s in samples),
        speedup=speedups[arm],
        first_speedup=table.ratio(arm, PLAIN.name, warm_up=True),
        best_fixed=best,
        ratio_to_best_fixed=speedups[arm] / speedups[best] if ratio is None else ratio,
        acceptance_rate=timings.acceptance_rate,
        mean_acceptance_length=timings.mean_acceptance_length,
        per_position_acceptance=timings.per_position_acceptance,
        draft_share=timings.draft_ms / wall_ms if wall_ms else 0.0,
        problems=_problems(samples),
        n_same_text=None if differences is None else sum(d is None for d in differences),
        first_difference=min((d for d in differences or () if d is not None), default=None),
    )


def _problems(samples: Sequence[Sample]) -> list[str] | None:
    """What checks found, an entry per wrong answer; None when nothing is checked."""
    checked = [s.problem for s in samples if s.problem is not None]
    return [problem for problem in checked if problem] if checked else None


def first_difference(sample: Sample, plain: Sample | None) -> int | None:
    """The first place where the tokens differ; None where they do not, or there is nothing to compare."""
    if plain is None or sample.tokens == plain.tokens:
        return None
    pairs = zip(sample.tokens, plain.tokens, strict=False)
    n = min(len(sample.tokens), len(plain.tokens))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), n)
