"""When target and draft model were at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

TARGET, DRAFT = "target", "draft"


@dataclass(frozen=True, slots=True)
class Span:
    """`party` computed from `start_s` to `end_s`, seconds of time.perf_counter; `is_ahead`: while the other
    one did, for an outcome that was not known yet."""

    party: str
    start_s: float
    end_s: float
    is_ahead: bool = False


WorkHandler = Callable[[Span], None]
"""Hears of every span when it ends, in the thread that computed."""


def ignore(span: Span) -> None:
    """For whom nobody watches."""


class WorkLog:
    """Keeps the latest spans until they are taken, and passes each on to `on_work`. Thread-safe."""

    MAX_SPANS = 256

    def __init__(self, on_work: WorkHandler = ignore) -> None:
        self._on_work = on_work
        self._spans: deque[Span] = deque(maxlen=self.MAX_SPANS)

    def note(self, span: Span) -> None:
        self._spans.append(span)
        self._on_work(span)

    def take(self) -> list[Span]:
        """The spans that ended since the last call, in the order of their ends."""
        return [self._spans.popleft() for _ in range(len(self._spans))]
