"""Progress of a build, visible although pip hides what a package prints while it is built."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_INTERVAL_S = 3.0


class Progress:
    """Writes lines to the terminal itself if there is one, else to stderr (shown by `pip install -v`)."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._shown_s = float("-inf")
        self._stream = _terminal() or sys.stderr

    def say(self, message: str) -> None:
        """Shows `message` at once."""
        self._shown_s = time.monotonic()
        elapsed = int(self._shown_s - self._started_s)
        # The carriage return leaves pip's spinner, which waits at the end of its line.
        print(f"\rlucebox [{elapsed // 60}:{elapsed % 60:02}] {message}", file=self._stream, flush=True)

    def update(self, message: str) -> None:
        """Shows `message` unless something was shown a moment ago."""
        if time.monotonic() - self._shown_s >= _INTERVAL_S:
            self.say(message)


def _terminal() -> TextIO | None:
    try:
        return open("/dev/tty", "w", encoding="utf-8")
    except OSError:
        return None
