"""An engine in a process of its own, started again when it dies: for the server."""

from __future__ import annotations

import logging
import threading

from lucebox.config import EngineConfig
from lucebox.engine.child_process import ChildProcess
from lucebox.engine.client import EngineClient, EngineState, StatusHandler
from lucebox.engine.messages import Failed, Loading, Message, Ready, RequestEvent, Shutdown, is_last
from lucebox.errors import EngineError, LuceboxError

logger = logging.getLogger(__name__)

MAX_DEATHS_IN_A_ROW = 5
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
EXIT_TIMEOUT_S = 2.0


class ProcessClient(EngineClient):
    """Supervises one engine process from a thread of this one.

    A process that dies is replaced, and what was running goes on from the tokens already sent. A request
    fails when two processes died on it without another token. The engine fails after MAX_DEATHS_IN_A_ROW
    deaths between which no request ended, or when its first start fails, as the next one would too.
    """

    def __init__(
        self, config: EngineConfig, on_status: StatusHandler | None = None, *, log_level: str = "info"
    ) -> None:
        super().__init__(on_status)
        self._config = config
        self._log_level = log_level
        self._child: ChildProcess | None = None
        self._closing = threading.Event()
        self._n_deaths = 0
        self._was_ready = False
        self._load_error: LuceboxError | None = None
        self._supervisor = threading.Thread(target=self._supervise, name="lucebox-engine", daemon=True)

    @property
    def pid(self) -> int | None:
        """The engine's process, for diagnosis; None between two of them."""
        with self._changed:
            return self._child.pid if self._child else None

    def start(self) -> None:
        self._supervisor.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends every request and the engine, by force after `timeout_s`. Idempotent."""
        with self._changed:
            self._closing.set()
            self._send(Shutdown())
        if self._supervisor.ident is not None and self._supervisor is not threading.current_thread():
            self._supervisor.join(timeout_s)
            if self._supervisor.is_alive():
                with self._changed:
                    if self._child is not None:
                        self._child.kill()
                self._supervisor.join()
        self._give_up(EngineError("the engine was closed"), EngineState.STOPPED)

    def _send(self, message: Message) -> None:
        if self._child is not None:
            self._child.send(message)

    def _supervise(self) -> None:
        try:
            while not self._closing.is_set():
                reason = self._run_child()
                if self._closing.is_set() or not self._survives(reason):
                    return
        except Exception as error:
            logger.exception("the engine's supervisor failed")
            self._give_up(EngineError(f"the engine cannot be supervised: {error}"))

    def _run_child(self) -> str:
        """Runs one process to its end, and says how it ended."""
        self._load_error, self._was_ready = None, False
        child = ChildProcess(self._config, self._log_level)
        with self._changed:
            self._child = child
            self._resubmit()
            if self._closing.is_set():
                child.send(Shutdown())
        try:
            while (event := child.receive()) is not None:
                match event:
                    case Failed(id=None):
                        self._load_error = event.error()
                    case Ready():
                        self._was_ready = True
                        self._dispatch(event)
                    case Loading() if self._info is not None:
                        detail = f"loading again: {event.stage}"
                        self._set_status(EngineState.RESTARTING, detail, event.fraction)
                    case _:
                        self._dispatch(event)
        except EngineError as error:
            logger.error("the engine process sent garbage: %s", error)
            child.kill()
        finally:
            with self._changed:
                self._child = None
            ending = child.reap(EXIT_TIMEOUT_S)
        return str(self._load_error) if self._load_error else ending

    def _survives(self, reason: str) -> bool:
        """After a death: fails what has to be, waits a little, and says whether to start another process."""
        error = self._load_error or EngineError(reason, remedy="see the log of the engine")
        if self._info is None and self._load_error is not None:
            self._give_up(error)
            return False
        n_failed = self._lost(reason) if self._was_ready else 0
        self._n_deaths = 0 if n_failed else self._n_deaths + 1
        if self._n_deaths >= MAX_DEATHS_IN_A_ROW:
            self._give_up(error)
            return False
        backoff_s = min(FIRST_BACKOFF_S * 2**self._n_deaths, MAX_BACKOFF_S)
        logger.error("%s; starting it again in %.1f s", reason, backoff_s)
        self._set_status(EngineState.RESTARTING, reason, n_deaths=1)
        return not self._closing.wait(backoff_s)

    def _deliver(self, id: str, event: RequestEvent) -> None:
        if is_last(event) and not isinstance(event, Failed):
            self._n_deaths = 0
        super()._deliver(id, event)
