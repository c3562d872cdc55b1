"""What is written to a terminal: nothing that could steer it, and errors as one red line."""

from __future__ import annotations

import os
import sys

from lucebox.errors import LuceboxError

_RED = "\x1b[31m"
_RESET = "\x1b[0m"


def printable(text: str, keep: str = "") -> str:
    """`text` with escapes for what could steer a terminal: control characters, except those of `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def show_error(error: LuceboxError) -> None:
    """One line on stderr: what is wrong and what to do about it. Red where colours show."""
    line = printable(f"lucebox: {error}".replace("\n", " "))
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    print(f"{_RED}{line}{_RESET}" if coloured else line, file=sys.stderr, flush=True)
