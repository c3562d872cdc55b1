"""Whether the engine's loop still turns, as seen from another thread: Pulse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """How long the step that runs now has been running. A device that hangs never ends one."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around each step, by the thread that makes it."""
        self._since_s = time.monotonic()
        try:
            yield
        finally:
            self._since_s = None

    @property
    def busy_s(self) -> float:
        """Seconds; 0 between steps."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s
