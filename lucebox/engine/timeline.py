"""When target and draft model were at work."""

from __future__ import annotations

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
