"""Progress of what takes long, on stderr: bars on a terminal, elsewhere one line as each thing begins."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from lucebox import terminal
from lucebox.engine.client import EngineState, EngineStatus

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bars:
    """Shows downloads and loading. Its handlers may be called from any thread."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """`say` gets the lines instead of stderr, and there are no bars."""
        self._say = say
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID | None] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Wipes the bars; nothing is shown from now on. Idempotent."""
        with self._lock:
            self._closed = True
            if self._progress is not None:
                self._progress.stop()
                self._progress = None

    def on_download(self, model: str, n_bytes: int, n_bytes_total: int) -> None:
        """Handler of `lucebox.resolve`."""
        size = f"{n_bytes_total / 1e6:,.0f} MB"
        done = f"{n_bytes / 1e6:,.0f} of {size}"
        self._show(f"fetching {model}", size, done, n_bytes / max(n_bytes_total, 1))

    def on_status(self, status: EngineStatus) -> None:
        """Handler of an engine's client: shows what is being loaded."""
        if status.state is EngineState.LOADING and status.detail:
            self._show(f"loading: {status.detail}", "", "", status.progress)

    def on_work(self, what: str, at: str, fraction: float) -> None:
        """Shows work of any other kind, and where it is."""
        self._show(what, "", at, fraction)

    def _show(self, what: str, size: str, done: str, fraction: float) -> None:
        with self._lock:
            if self._closed:
                return
            # An open display puts a proxy in the place of stderr, which may say otherwise.
            if self._progress is None and (self._say is not None or not sys.stderr.isatty()):
                if what not in self._tasks:
                    self._tasks[what] = None
                    (self._say or _say)(f"{what} {size}".rstrip())
                return
            progress = self._open()
            task = self._tasks.get(what)
            if task is None:
                task = self._tasks[what] = progress.add_task(what, total=1.0, done=done)
            progress.update(task, completed=fraction, done=done)

    def _open(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        if self._progress is None:
            what = TextColumn("{task.description}", markup=False)  # names of files may have brackets
            columns = (what, BarColumn(), TaskProgressColumn())
            more = (TextColumn("{task.fields[done]}", markup=False), TimeRemainingColumn())
            self._progress = Progress(*columns, *more, console=Console(stderr=True), transient=True)
            self._progress.start()
        return self._progress


def _say(line: str) -> None:
    terminal.say(f"lucebox: {line}")
