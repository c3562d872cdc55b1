"""Reads messages at a terminal, with line editing, recall across sessions and messages of several lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

MAX_HISTORY = 1000
BLOCK = '"""'
CONTINUES = "\\"


@contextmanager
def recall(path: Path) -> Iterator[None]:
    """Lines typed within are recalled by the arrow keys, and kept in `path` for the next time.

    Without a readline, or a folder to write to, there is just less of it.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_history_length(MAX_HISTORY)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # what people ask is theirs
            readline.write_history_file(path)


def read_message(
    interactive: bool, allowed: Callable[[], AbstractContextManager[None]] = nullcontext
) -> str | None:
    """The next message, or None at the end of the input. Over pipes each line is one.

    At a terminal a backslash at the end of a line continues it, and three quotes begin and end a message of
    several lines. Ctrl-C drops what was typed; it may come in an `allowed()` block.
    """
    while True:
        try:
            with allowed():
                return _typed() if interactive else input()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not interactive:
                raise
            print("\n(/exit or Ctrl-D leaves)", file=sys.stderr)


def _typed() -> str:
    line = input("> ")
    if line.lstrip().startswith(BLOCK):
        return _block(line.lstrip().removeprefix(BLOCK))
    lines = [line]
    while lines[-1].endswith(CONTINUES):
        lines[-1] = lines[-1].removesuffix(CONTINUES)
        lines.append(input("… "))
    return "\n".join(lines)


def _block(first: str) -> str:
    """What follows three quotes, up to the next three."""
    lines = [first]
    while BLOCK not in lines[-1]:
        lines.append(input("… "))
    lines[-1] = lines[-1].partition(BLOCK)[0]
    return "\n".join(lines).strip("\n")
