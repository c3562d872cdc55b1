"""What a server tells of its start as it goes on: StartupReport."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lucebox.config import ServerConfig
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.engine.messages import EngineInfo
from lucebox.progress import Bars
from lucebox.server import console
from lucebox.server.console import Say


class StartupReport:
    """Tells what will be loaded once the engine has found that it can be, how loading goes, and the end.

    From any thread.
    """

    def __init__(self, config: ServerConfig, say: Say, bars: Bars, url: Callable[[], str] | None) -> None:
        """`url` is where the server can be reached, if that is known."""
        self._config = config
        self._say = say
        self._bars = bars
        self._url = url
        self._lock = threading.Lock()
        self._said_plan = False
        self.is_over = False

    def on_status(self, status: EngineStatus, info: EngineInfo | None) -> None:
        """`info` is what the engine offers, as far as it is ready."""
        with self._lock:
            if self.is_over:
                return
            if status.plan is not None and not self._said_plan:
                self._said_plan = True
                console.say_plan(self._config, self._say)
                console.say_memory(status.plan, self._say)
            if status.state not in (EngineState.READY, EngineState.FAILED):
                self._bars.on_status(status)
                return
            self.is_over = True
            self._bars.close()
            if status.state is EngineState.READY and info is not None:
                url = None if self._url is None else self._url()
                console.say_ready(info, self._config.host, url, self._say)
