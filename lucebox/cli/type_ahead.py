"""What is typed while an answer is written: not shown within it, but at the next prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back(descriptor: int) -> Iterator[None]:
    """The terminal at `descriptor` neither shows nor edits what is typed; who reads next gets all of it."""
    try:
        import termios
    except ImportError:
        yield
        return
    try:
        before = termios.tcgetattr(descriptor)
    except termios.error:  # no terminal
        yield
        return
    quiet = list(before)
    quiet[3] = before[3] & ~(termios.ECHO | termios.ICANON)  # c_lflag; signals stay
    try:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
        yield
    finally:
        with contextlib.suppress(termios.error):  # it may have been hung up
            termios.tcsetattr(descriptor, termios.TCSANOW, before)  # waits for nothing, so nothing interrupts
