"""An engine in a process of its own, started again when it dies: for the server."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from math import ceil

from lucebox.config import EngineConfig
from lucebox.engine.client import EngineClient, EngineState, EngineStatus, StatusHandler
from lucebox.engine.engine_process import EngineProcess
from lucebox.engine.messages import (
    Event,
    Failed,
    Loading,
    Message,
    Ping,
    Pong,
    Ready,
    RequestEvent,
    Shutdown,
    is_last,
)
from lucebox.errors import EngineError, LuceboxError, WorkerError

logger = logging.getLogger(__name__)

MAX_DEATHS_IN_A_ROW = 5
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
LONG_BACKOFF_S = 30.0  # once MAX_DEATHS_IN_A_ROW are reached
EXIT_TIMEOUT_S = 2.0
PING_S = 1.0  # of silence, until the process is asked whether it lives
SILENT_S = 4.0  # of silence, pings or not, until the status says so
HANG_S = 15.0  # of silence, pings or not, until it is ended; on a busy machine threads may starve for seconds
STUCK_S = 300.0  # of one step, which takes minutes for no prompt that is worth waiting for
LOAD_HANG_S = 60.0  # the same while it loads, from a cold disk at worst
WORKER_WAIT_S = 7.0  # from an engine's last event: what requests wait for a lost worker
MIN_WORKER_WAIT_S = 2.0  # from the loss, however long the last event is ago


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended. `error` is what loading met; `was_ready` before it ended."""

    reason: str
    error: LuceboxError | None
    was_ready: bool
    is_lost_worker: bool


class ProcessClient(EngineClient):
    """Supervises one engine process from a thread of this one.

    A process that dies, answers no pings, or is stuck in a step for STUCK_S is replaced, and what was running
    goes on from the tokens already sent. A request fails when two processes died on it without another token.
    After MAX_DEATHS_IN_A_ROW deaths between which no request ended, requests are refused, and another process
    is tried every LONG_BACKOFF_S. The engine fails for good when its first start does, as the next one would.

    A process that died for a worker is no reproach to anybody: others are started until one finds the worker
    again, and requests wait for it, up to WORKER_WAIT_S, before they are refused.
    """

    def __init__(
        self, config: EngineConfig, on_status: StatusHandler | None = None, *, log_level: str = "info"
    ) -> None:
        super().__init__(on_status, max_in_flight=config.n_parallel + config.max_queue)
        self._config = config
        self._log_level = log_level
        self._child: EngineProcess | None = None
        self._closing = threading.Event()
        self._silent_s = 0.0  # how long a process that was asked whether it lives has not answered
        self._n_deaths = 0
        self._n_searches = 0  # for a worker that is away
        self._patience: threading.Timer | None = None  # until requests do not wait for it any more
        self._supervisor = threading.Thread(target=self._supervise, name="lucebox-engine", daemon=True)

    @property
    def pid(self) -> int | None:
        """The engine's process, for diagnosis; None between two of them."""
        with self._changed:
            return self._child.pid if self._child else None

    def status(self) -> EngineStatus:
        """A process that should have answered seconds ago shows as degraded, until it does or is replaced."""
        status, silent_s = super().status(), self._silent_s
        if status.state is not EngineState.READY or silent_s < SILENT_S:
            return status
        reason = f"the engine's process has not answered for {silent_s:.0f} s"
        return replace(status, degraded="; ".join(filter(None, (reason, status.degraded))))

    def start(self) -> None:
        self._supervisor.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends every request and the engine, by force after `timeout_s`. Idempotent."""
        with self._changed:
            self._closing.set()
            self._send(Shutdown())
            self._end_search()
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
                death = self._run_child()
                if self._closing.is_set() or not self._survives(death):
                    return
        except Exception as error:
            logger.exception("the engine's supervisor failed")
            self._give_up(EngineError(f"the engine cannot be supervised: {error}"))

    def _run_child(self) -> Death:
        """Runs one process to its end, and says how it ended."""
        load_error, was_ready, why_killed = None, False, ""
        self._set_degraded("")
        child = EngineProcess(self._config, self._log_level)
        with self._changed:
            self._child = child
            self._resubmit()
            if self._closing.is_set():
                child.send(Shutdown())
        try:
            while (event := self._next(child, HANG_S if was_ready else LOAD_HANG_S)) is not None:
                match event:
                    case Failed(id=None):
                        load_error = event.error()
                    case Ready():
                        was_ready = True
                        self._note_ready(event)
                    case Pong() if event.busy_s > STUCK_S:
                        raise EngineError(f"one step of the engine has been running for {event.busy_s:.0f} s")
                    case Loading() if self._info is not None:
                        detail = f"loading again: {event.stage}"
                        self._set_status(EngineState.RESTARTING, detail, event.fraction)
                    case _:
                        self._dispatch(event)
        except EngineError as error:
            logger.error("%s", error)
            why_killed = error.message
            child.kill()
        finally:
            self._silent_s = 0.0
            with self._changed:
                self._child = None
            ending = child.reap(EXIT_TIMEOUT_S)
        is_lost_worker = ending.is_lost_worker or isinstance(load_error, WorkerError)
        reason = why_killed or str(load_error or ending)
        return Death(reason, load_error, was_ready, is_lost_worker)

    def _next(self, child: EngineProcess, limit_s: float) -> Event | None:
        """The next event; None when the process has ended.

        Raises EngineError for garbage, and for silence of `limit_s`: pings are answered during forwards, too.
        """
        # Waits are counted, and no clock read: while this process stood still, it asked nobody.
        for n_waits in range(1, 2 + ceil(limit_s / PING_S)):
            try:
                event = child.receive(PING_S)
            except TimeoutError:
                self._silent_s = n_waits * PING_S
                child.send(Ping())
            else:
                self._silent_s = 0.0
                return event
        raise EngineError(f"the engine process did not answer for {limit_s:.0f} s")

    def _note_ready(self, ready: Ready) -> None:
        with self._changed:
            self._end_search()
        self._dispatch(ready)

    def _end_search(self) -> None:
        self._n_searches = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _survives(self, death: Death) -> bool:
        """After a death: fails what has to be, waits a little, and says whether to start another process."""
        error = death.error or EngineError(death.reason, remedy="see the log of the engine")
        if self._info is None and (death.error is not None or death.is_lost_worker):
            self._give_up(error)
            return False
        if self._info is not None and death.is_lost_worker:
            return self._await_worker(death)
        n_failed = self._lost(death.reason) if death.was_ready else 0
        self._n_deaths = 0 if n_failed else self._n_deaths + 1
        backoff_s = min(FIRST_BACKOFF_S * 2**self._n_deaths, MAX_BACKOFF_S)
        if self._n_deaths >= MAX_DEATHS_IN_A_ROW:
            if self._info is None:
                self._give_up(error)
                return False
            backoff_s = LONG_BACKOFF_S
            self._turn_away(error)
        logger.error("%s; starting it again in %.1f s", death.reason, backoff_s)
        self._set_status(EngineState.RESTARTING, death.reason, n_deaths=1)
        return not self._closing.wait(backoff_s)

    def _await_worker(self, death: Death) -> bool:
        """Waits before the next search for a worker that is away; no limit to how often."""
        with self._changed:
            is_first, self._n_searches = self._n_searches == 0, self._n_searches + 1
            silent_s = time.monotonic() - self._heard_s if self._in_flight else 0.0
        if is_first:
            logger.error("%s; the engine starts again when the worker is back", death.reason)
            self._limit_patience(max(MIN_WORKER_WAIT_S, WORKER_WAIT_S - silent_s), death.reason)
        self._set_status(EngineState.RESTARTING, death.reason, n_deaths=int(death.was_ready))
        return not self._closing.wait(min(FIRST_BACKOFF_S * 2**self._n_searches, MAX_BACKOFF_S))

    def _limit_patience(self, wait_s: float, reason: str) -> None:
        """Refuses requests in `wait_s`, unless the worker is back by then."""
        refusal = WorkerError(reason, remedy="try again when the worker is back")
        timer: threading.Timer = threading.Timer(
            wait_s, self._turn_away, (refusal, lambda: self._patience is timer)
        )
        timer.daemon = True
        with self._changed:
            self._patience = timer
        timer.start()

    def _deliver(self, id: str, event: RequestEvent) -> None:
        if is_last(event) and not isinstance(event, Failed):
            self._n_deaths = 0
        super()._deliver(id, event)
