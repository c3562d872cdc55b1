"""How long a step of the engine may look ahead of itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WEIGHT_OF_LATEST = 0.25


class SpareTime:
    """What one sequence may spend, in each step, on work that could be done later or not at all.

    A step that spent more than its share takes it from the next ones, so that on average none is dearer than
    that. There is no bound before the first `renew`. `clock` counts seconds of this thread's own work: what
    others took of the processor meanwhile tells nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._left_s = math.inf
        self._typical_s = 0.0

    @property
    def is_left(self) -> bool:
        return self._left_s > 0.0

    def n_affordable(self, n: int) -> int:
        """How many of `n` pieces of work there is time for, if they take as long as those before them."""
        if self._left_s <= 0.0:
            return 0
        return n if n * self._typical_s <= self._left_s else int(self._left_s / self._typical_s)

    def renew(self, share_s: float) -> None:
        """A new step begins, of which `share_s` are this sequence's."""
        self._left_s = min(share_s, self._left_s + share_s)

    def end(self) -> None:
        """There shall be no more of it."""
        self._left_s = -math.inf

    @contextmanager
    def measured(self, *, is_spare: bool) -> Iterator[None]:
        """Within the block one piece of work is done. Unless it `is_spare`, it had to be, and is free."""
        started_s = self._clock()
        try:
            yield
        finally:
            took_s = self._clock() - started_s
            self._typical_s += WEIGHT_OF_LATEST * (took_s - self._typical_s)
            if is_spare:
                self._left_s -= took_s
