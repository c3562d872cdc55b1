"""Measures what forwards cost when an engine is loaded: a few seconds, once for each machine and model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows, Want

BUDGET_S = 2.5
N_PASSES = 5  # over all points, where there is time; the fastest of each counts
N_KV_FAR = 4096
N_KV_NEAR = 1024  # a context as short as that costs what none does

# Rows, the most telling first: slow machines get no further.
TARGET_ROWS = (1, 4, 8, 2, 5, 3, 16, 12)
TARGET_ROWS_FAR = (1, 8)
DRAFT_ROWS = (1, 2, 16, 64)
DRAFT_ROWS_FAR = (1,)

Measured = tuple[int, int, float]  # rows, tokens of context, ms


class Model(Protocol):
    """What is used of a lucebox.runtime.runtime.Runtime."""

    @property
    def n_batch(self) -> int: ...

    @property
    def n_ctx(self) -> int: ...

    @property
    def cache(self) -> Cache: ...

    def forward(self, rows: Rows) -> object: ...


@dataclass(slots=True)
class _Point:
    """Forwards of `n_rows` rows behind `n_kv` tokens, and the milliseconds each took."""

    model: Model
    n_rows: int
    n_kv: int
    want_all: Want | None
    took_ms: list[float] = field(default_factory=list)

    def measure(self, clock: Callable[[], float]) -> None:
        tokens = np.zeros(self.n_rows, np.int32)
        rows = Rows.chain(0, tokens, self.n_kv, want_all=self.want_all)
        started_s = clock()
        self.model.forward(rows)
        self.took_ms.append(1000.0 * (clock() - started_s))


def calibrate(
    target: Model,
    draft: Model | None,
    *,
    on_progress: Callable[[float], None] = lambda fraction: None,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[Measured], list[Measured]]:
    """What forwards of the two models cost, in milliseconds. Their caches are empty before and after.

    Measures all points in turn, again and again, until `budget_s` are used up; begins nothing that is not
    expected to fit, but for what a single row takes.
    """
    started_s = clock()
    near = [_Point(target, n, 0, Want.LOGITS) for n in TARGET_ROWS]
    far = [_Point(target, n, _n_kv_far(target), Want.LOGITS) for n in TARGET_ROWS_FAR]
    if draft is not None:
        near[1:1] = [_Point(draft, n, 0, None) for n in DRAFT_ROWS]
        far += [_Point(draft, n, _n_kv_far(draft), None) for n in DRAFT_ROWS_FAR]
    for model in (target, draft):
        if model is not None:  # the first forward of all faults the weights in
            with _context(model, 0):
                _Point(model, 1, 0, Want.LOGITS).measure(clock)
    for n_pass in range(N_PASSES):
        for points, is_far in ((near, False), (far, True)):
            for point in points:
                if not _fits(point, is_far):
                    continue
                used_s = clock() - started_s
                is_vital = point.n_rows == 1 and not is_far and not point.took_ms
                if used_s + _expected_ms(point, near) / 1000.0 > budget_s and not is_vital:
                    continue
                with _context(point.model, point.n_kv):
                    point.measure(clock)
        on_progress(max((n_pass + 1) / N_PASSES, min(1.0, (clock() - started_s) / budget_s)))
    return _fastest(target, [*near, *far]), _fastest(draft, [*near, *far])


def _n_kv_far(model: Model) -> int:
    """A long context that still has room for the rows."""
    return min(N_KV_FAR, model.n_ctx - max(TARGET_ROWS))


def _fits(point: _Point, is_far: bool) -> bool:
    if is_far and point.n_kv < N_KV_NEAR:
        return False
    return point.n_kv + point.n_rows <= point.model.n_ctx and point.n_rows <= point.model.n_batch


def _expected_ms(point: _Point, near: Sequence[_Point]) -> float:
    """What `point` took, or would take if a row cost what one alone does."""
    if point.took_ms:
        return min(point.took_ms)
    alone = next(p for p in near if p.model is point.model and p.n_rows == 1)
    return point.n_rows * min(alone.took_ms, default=0.0)


@contextmanager
def _context(model: Model, n_kv: int) -> Iterator[None]:
    """A sequence of `n_kv` tokens that are in the cache, and were never computed: memory is cleared when it
    is allocated, and what lies in it costs the same to read."""
    cache = model.cache
    try:
        if n_kv:
            cache.reserve(Rows.chain(0, np.zeros(n_kv, np.int32), 0))
            cache.commit(0, range(n_kv))
        yield
    finally:
        cache.drop_pending()
        cache.release(0)


def _fastest(model: Model | None, points: Sequence[_Point]) -> list[Measured]:
    """The least that was measured at each point: what disturbs a forward makes it slower, never faster."""
    return [(p.n_rows, p.n_kv, min(p.took_ms)) for p in points if p.model is model and p.took_ms]
