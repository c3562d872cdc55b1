"""One process at a time: a lock that the system frees when its holder dies."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.2


@contextmanager
def exclusive(path: Path, *, while_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock file `path`; calls `while_waiting` a few times a second until it is free."""
    with path.open("a+b") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                while_waiting()
                time.sleep(_POLL_S)
        yield  # closing the file frees the lock; the file stays, since removing it would race
