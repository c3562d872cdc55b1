"""What a forward of one model costs, in milliseconds: by rows and by context."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

PACE_WEIGHT = 0.08  # of the newest forward, in what all of a machine's have in common
POINT_WEIGHT = 0.03  # and in what those of its rows have
CLIP = math.log(2.0)  # a forward counts for twice or half as slow at most: the machine is shared
N_MEDIAN = 3  # one slow forward among so many changes nothing
N_DENSE = 40  # rows whose costs are kept ready
N_REFRESH = 8  # observations after which those are made anew
LEAST_MS = 1e-6  # of a forward
MOST_MS = 1e9  # that a file of costs may say: far more than any forward takes
GUESSED_SHARE = 0.5  # of a first row's cost, for every further one, where no second point was measured


@dataclass(slots=True)
class Pace:
    """How slow a device is just now, as a factor. Models on one device share it."""

    scale: float = 1.0


class ForwardCosts:
    """Measured points, interpolated and kept monotone in rows.

    `steps` are the row counts that graphs exist for: a forward costs what the next larger of them does, so
    rows up to there are free. Each further token of context costs a row count its own slope. A whole machine
    that gets slower scales all points; a single slow forward does nothing.
    """

    def __init__(self, steps: Sequence[int] = (), pace: Pace | None = None) -> None:
        self.steps = tuple(steps)
        self._points: dict[int, float] = {}  # rows -> ms with no context
        self._slopes: dict[int, float] = {}  # rows -> ms per token of context
        self._pace = Pace() if pace is None else pace
        self._ratios: dict[int, list[float]] = {}
        self._dense: list[tuple[float, float]] = []
        self._n_stale = 0

    @property
    def is_empty(self) -> bool:
        return not self._points

    def ms(self, n_rows: int, n_kv: int = 0) -> float:
        """A forward of `n_rows` rows over sequences of up to `n_kv` tokens; 0 before any was measured."""
        if n_rows < len(self._dense):
            base, slope = self._dense[n_rows]
            return self._pace.scale * (base + slope * n_kv)
        if not self._points or n_rows <= 0:
            return 0.0
        if n_rows < N_DENSE:
            self._refresh()
            return self.ms(n_rows, n_kv)
        base, slope = self._at(n_rows)
        return self._pace.scale * (base + slope * n_kv)

    def set(self, measured: Iterable[tuple[int, int, float]]) -> None:
        """Points `(n_rows, n_kv, ms)` measured on purpose; two contexts of one row count make a slope.

        What took longer than a forward of more rows was disturbed, and costs as much as that one.
        """
        by_rows: dict[int, dict[int, float]] = {}
        for n_rows, n_kv, ms in measured:
            by_rows.setdefault(n_rows, {})[n_kv] = ms
        for n_rows, by_context in by_rows.items():
            (low, base), (high, far) = min(by_context.items()), max(by_context.items())
            slope = max(0.0, far - base) / (high - low) if high > low else 0.0
            if high > low:
                self._slopes[n_rows] = slope
            self._points[n_rows] = max(LEAST_MS, base - slope * low)
        least_ms = math.inf
        for n_rows in sorted(self._points, reverse=True):
            least_ms = self._points[n_rows] = min(least_ms, self._points[n_rows])
        self._refresh()

    def observe(self, n_rows: int, n_kv: int, ms: float) -> None:
        """Learns from a forward that took `ms`."""
        if ms <= 0.0 or n_rows <= 0:
            return
        point = self._step(n_rows)
        expected = self.ms(n_rows, n_kv)
        if expected <= 0.0:
            self._points[point] = ms / self._pace.scale
            self._refresh()
            return
        ratios = self._ratios.setdefault(point, [])
        ratios.append(math.log(ms / expected))
        del ratios[:-N_MEDIAN]
        if len(ratios) < N_MEDIAN:
            return
        if point in self._points:
            change = max(-CLIP, min(CLIP, median(ratios)))
            self._pace.scale *= math.exp(PACE_WEIGHT * change)
            self._points[point] *= math.exp(POINT_WEIGHT * change)
        else:
            self._points[point] = self._at(point)[0] * math.exp(median(ratios))
        self._n_stale += 1
        if self._n_stale >= N_REFRESH:
            self._refresh()

    def to_dict(self) -> dict[str, Any]:
        """All that was measured, as JSON can hold it."""
        return {
            "points": {str(n): self._pace.scale * ms for n, ms in self._points.items()},
            "slopes": {str(n): self._pace.scale * ms for n, ms in self._slopes.items()},
        }

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], steps: Sequence[int] = (), pace: Pace | None = None
    ) -> ForwardCosts:
        """The inverse of `to_dict`. Raises ValueError, KeyError or TypeError for what it never wrote."""
        costs = cls(steps, pace)
        for name, into in (("points", costs._points), ("slopes", costs._slopes)):
            for n_rows, ms in values[name].items():
                into[int(n_rows)] = float(ms)
                if int(n_rows) < 1 or not 0.0 <= into[int(n_rows)] <= MOST_MS:
                    raise ValueError(f"{name} of {n_rows} rows: {ms}")
        costs._points = {n_rows: max(LEAST_MS, ms) for n_rows, ms in costs._points.items()}
        costs._refresh()
        return costs

    def _step(self, n_rows: int) -> int:
        """The row count that a forward of `n_rows` is computed as."""
        i = bisect_left(self.steps, n_rows)
        return self.steps[i] if i < len(self.steps) else n_rows

    def _refresh(self) -> None:
        """Makes the costs of few rows ready: no more than a list is looked into on the way of a step."""
        self._n_stale = 0
        dense = [(0.0, 0.0)]
        for n_rows in range(1, N_DENSE):
            base, slope = self._at(n_rows)
            dense.append((max(base, dense[-1][0]), max(slope, dense[-1][1])))
        self._dense = dense

    def _at(self, n_rows: int) -> tuple[float, float]:
        """(ms with no context, ms per token of context), unscaled."""
        n = self._step(n_rows)
        return _interpolated(self._points, n, GUESSED_SHARE), _interpolated(self._slopes, n, 1.0)


def _interpolated(points: Mapping[int, float], n: int, share: float) -> float:
    """The line through the neighbouring points, or through the last two of them; `share` of what a row costs
    per further row where there is one point only."""
    if not points:
        return 0.0
    if n in points:
        return points[n]
    known = sorted(points)
    i = bisect_left(known, n)
    if i == 0:
        return points[known[0]] * (1.0 - share * (1.0 - n / known[0]))
    if i == len(known) and i == 1:
        return points[known[0]] * (1.0 + share * (n / known[0] - 1.0))
    left, right = (known[i - 1], known[i]) if i < len(known) else (known[-2], known[-1])
    per_row = max(0.0, points[right] - points[left]) / (right - left)
    return points[left] + per_row * (n - left)
