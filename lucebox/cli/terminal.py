"""What the verbs show on a terminal. Answers and tables go to stdout; progress and errors to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lucebox.errors import LuceboxError

if TYPE_CHECKING:
    from lucebox.engine.client import EngineStatus, StatusHandler
    from lucebox.resolve import Progress

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


@contextmanager
def download_progress() -> Iterator[Progress]:
    """A bar per model being fetched, on stderr; nothing when nothing is fetched."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import (
        Progress as Bars,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bars = Bars(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def on_progress(model: str, n_bytes: int, n_bytes_total: int) -> None:
        if model not in tasks:
            bars.start()
            tasks[model] = bars.add_task(f"fetching {model}", total=n_bytes_total)
        bars.update(tasks[model], completed=n_bytes, total=n_bytes_total)

    try:
        yield on_progress
    finally:
        bars.stop()


@contextmanager
def load_progress() -> Iterator[StatusHandler]:
    """A bar for what the engine is loading, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task("loading", total=1.0)

    def on_status(status: EngineStatus) -> None:
        bars.start()
        bars.update(task, description=status.detail or str(status.state), completed=status.progress)

    try:
        yield on_status
    finally:
        bars.stop()
