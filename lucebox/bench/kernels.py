"""Compiled kernels against their NumPy twins: `python -m lucebox.bench.kernels`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np
from rich.console import Console
from rich.table import Table

from lucebox._kernels import compiled_or
from lucebox.acceptance import reference as verify_twin
from lucebox.core import Distribution, Float32Array
from lucebox.sampling import reference as sampling_twin

TEMPERATURE, TOP_K, TOP_P = 0.8, 40, 0.95
N_DRAFTED = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: `run(sampling, verify)` does the work of `n_rows` rows."""

    name: str
    n_rows: int
    run: Callable[[ModuleType, ModuleType], object]


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lucebox.bench.kernels", description="Time the kernels on rows of random logits."
    )
    parser.add_argument("--n-vocab", type=int, default=151_936, help="width of a row (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=100, help="runs of a kernel (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the logits (default: %(default)s)")
    arguments = parser.parse_args(argv)
    sampling = compiled_or("sampling", sampling_twin)
    verify = compiled_or("verify", verify_twin)
    table = Table(
        title=f"{arguments.n_vocab} logits a row, seed {arguments.seed}, medians of {arguments.repeats} runs",
        caption=f"filtered: temperature {TEMPERATURE}, top-k {TOP_K}, top-p {TOP_P}",
    )
    for heading in ("case", "rows", "Cython ms/row", "NumPy ms/row", "ratio"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for case in cases(arguments.n_vocab, arguments.seed):
        fast_ms = median_ms(partial(case.run, sampling, verify), arguments.repeats) / case.n_rows
        n_slow = max(5, arguments.repeats // 10)
        slow_ms = median_ms(partial(case.run, sampling_twin, verify_twin), n_slow) / case.n_rows
        figures = f"{case.n_rows}", f"{fast_ms:.4f}", f"{slow_ms:.3f}", f"{slow_ms / fast_ms:.1f}×"
        table.add_row(case.name, *figures)
    Console().print(table)


def cases(n_vocab: int, seed: int) -> Iterator[Case]:
    """A few likely tokens on a wide floor, as language models have it."""
    random = np.random.default_rng(seed)
    rows = random.normal(0.0, 3.0, (N_DRAFTED + 1, n_vocab)).astype(np.float32)
    for row in rows:
        row[random.choice(n_vocab, 8)] += 12.0
    logits = rows[0]
    probs = sampling_twin.softmax(logits, 1.0)
    yield Case("filtered law", 1, lambda s, v: s.filtered(logits, TEMPERATURE, 0.0, TOP_K, TOP_P))
    yield Case("top-p alone", 1, lambda s, v: s.filtered(logits, TEMPERATURE, 0.0, 0, TOP_P))
    yield Case("dense softmax", 1, lambda s, v: s.softmax(logits, 1.0))
    yield Case("dense draw", 1, lambda s, v: s.sample(None, probs, 0.999))
    yield Case("argmax", 1, lambda s, v: s.argmax(logits))
    for name, is_filtered in (("verify, filtered laws", True), ("verify, dense laws", False)):
        work = Verification(rows, is_filtered)
        yield Case(name, N_DRAFTED, work.run)


class Verification:
    """Eight drafted tokens: law, test and, where one fails, residual of each row; the bonus behind them."""

    def __init__(self, rows: Float32Array, is_filtered: bool) -> None:
        self.rows = rows
        self.is_filtered = is_filtered
        self.q = [self._law(sampling_twin, row + np.float32(0.1) * row[::-1]) for row in rows[:N_DRAFTED]]
        self.tokens = [q.argmax() for q in self.q]

    def run(self, sampling: ModuleType, verify: ModuleType) -> int:
        n_accepted = 0
        for row, q, token in zip(self.rows, self.q, self.tokens, strict=False):
            p = self._law(sampling, row)
            if verify.accepts(p.ids, p.probs, q.ids, q.probs, token, 0.9):
                n_accepted += 1
            else:
                verify.residual_sample(p.ids, p.probs, q.ids, q.probs, token, 0.5)
        bonus = self._law(sampling, self.rows[N_DRAFTED])
        sampling.sample(bonus.ids, bonus.probs, 0.5)
        return n_accepted

    def _law(self, sampling: ModuleType, row: Float32Array) -> Distribution:
        if self.is_filtered:
            ids, probs = sampling.filtered(row, TEMPERATURE, 0.0, TOP_K, TOP_P)
            return Distribution(len(row), probs, ids)
        return Distribution(len(row), sampling.softmax(row, 1.0))


def median_ms(run: Callable[[], object], n: int) -> float:
    """Median of `n` runs behind two that warm up."""
    times = []
    for _ in range(n + 2):
        started_s = time.perf_counter()
        run()
        times.append(1000.0 * (time.perf_counter() - started_s))
    return statistics.median(times[2:])


if __name__ == "__main__":
    main(sys.argv[1:])
