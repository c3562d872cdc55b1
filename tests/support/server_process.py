"""A real server: its own process, its own engine process, a socket on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 120.0

T = TypeVar("T")


class ServerProcess:
    """`python -m lucebox.server` with `flags` on a free port, its words in `log`."""

    def __init__(self, log: Path, *flags: str, environ: dict[str, str] | None = None) -> None:
        self.log = log
        command = [sys.executable, "-m", "lucebox.server", "--port", "0", *flags]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def __enter__(self) -> Self:
        try:
            self.url = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def engine_pid(self) -> int:
        """The one child of the server."""
        (pid,) = wait_for(lambda: children(self.process.pid), "an engine process")
        return pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait_until_ready(self) -> str:
        def address() -> str | None:
            assert self.process.poll() is None, f"the server ended:\n{self.words()}"
            match = re.search(r"address +(https?://\S+)/v1", self.words())
            return match and match[1]

        return wait_for(address, "the server's address", START_TIMEOUT_S)


def wait_for(condition: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    """The first true value of `condition`. AssertionError naming `what` after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline_s, f"{what} did not come in {timeout_s} s"
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """Living child processes of `pid` (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
