"""What is written to a terminal: nothing that could steer it, and errors as one red line."""

from __future__ import annotations

import contextlib
import io
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


def prepare_streams() -> None:
    """Puts the null device where a standard stream is closed, and lets stdout take any text.

    Else a model or a socket would get the number of a closed stream, and be written to by whoever logs.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def say(line: str) -> None:
    """`line` on stderr. Who reads it may have gone: that ends nothing."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def show_error(error: LuceboxError) -> None:
    """One line on stderr: what is wrong and what to do about it. Red where colours show."""
    line = printable(f"lucebox: {error}".replace("\n", " "))
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    say(f"{_RED}{line}{_RESET}" if coloured else line)
