"""What a server that starts tells its user: the plan, the progress, the address. All of it on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lucebox.config import ServerConfig
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.engine.messages import EngineInfo, ModelInfo

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def say(line: str) -> None:
    print(f"lucebox: {line}", file=sys.stderr, flush=True)


def say_plan(config: ServerConfig) -> None:
    """One line each for what will be loaded, before it is."""
    engine = config.engine
    say(f"target   {config.model_alias} ({Path(engine.target.path).name}) on {engine.target.device}")
    if engine.draft is None:
        say("draft    none" if engine.drafter == "none" else f"draft    {engine.drafter}")
    else:
        say(f"draft    {Path(engine.draft.path).name} on {engine.draft.device}, {engine.draft_length}")
    lanes = "one sequence" if engine.n_parallel == 1 else f"{engine.n_parallel} sequences"
    say(
        f"context  {engine.n_ctx} tokens, {lanes} at a time, KV cache {engine.target.kv_type}, "
        f"{engine.target.n_threads} threads"
    )


def say_ready(info: EngineInfo, url: str) -> None:
    models = [_loaded("target", info.target)] + ([_loaded("draft", info.draft)] if info.draft else [])
    say(f"ready    in {info.load_ms / 1000:.1f} s: {', '.join(models)}")
    say(f"address  {url}/v1 (Ctrl-C stops)")


def _loaded(role: str, model: ModelInfo) -> str:
    return f"{role} on {model.device} ({model.n_bytes / 2**20:,.0f} MiB)"


class Bars:
    """Progress bars on a terminal; one line per stage elsewhere."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def on_download(self, model: str, n_bytes: int, n_bytes_total: int) -> None:
        self._show(f"fetching {model}", n_bytes / max(n_bytes_total, 1), f"{n_bytes_total / 1e6:,.0f} MB")

    def on_status(self, status: EngineStatus) -> None:
        if status.state is EngineState.LOADING and status.detail:
            self._show(f"loading {status.detail}", status.progress)

    def _show(self, what: str, fraction: float, size: str = "") -> None:
        if what not in self._tasks and not self._is_terminal:
            say(f"{what} {size}".rstrip())
        if self._is_terminal:
            progress = self._open()
            if what not in self._tasks:
                self._tasks[what] = progress.add_task(f"{what} {size}", total=1.0)
            progress.update(self._tasks[what], completed=fraction)
        else:
            self._tasks.setdefault(what, TaskID(0))

    def _open(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        if self._progress is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            console = Console(stderr=True)
            self._progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._progress.start()
        return self._progress
