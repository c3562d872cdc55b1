"""The one way to use an engine, whatever runs it. The transports are thread_client and process_client."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.in_flight import NO_TIMINGS, EventHandler, InFlight
from lucebox.engine.messages import (
    Cancel,
    Degraded,
    Embedded,
    EngineInfo,
    Event,
    Failed,
    Loading,
    Message,
    Planned,
    Ready,
    Request,
    RequestEvent,
    StepEvent,
    is_last,
)
from lucebox.engine.timings import Timings
from lucebox.errors import EngineError, LuceboxError, QueueFullError

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 512  # where nobody says how many may wait
MAX_DEATHS_PER_REQUEST = 2


class EngineState(StrEnum):
    """Where an engine stands. FAILED and STOPPED are final.

    RESTARTING keeps requests waiting; AWAY refuses them, while it is tried from time to time to start again.
    """

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    AWAY = "away"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """`detail` says what is being loaded, or why the engine restarts or failed; `progress` is 0 to 1.

    `quiet_s` is how long the engine has said nothing although it has requests: seconds for a long prompt,
    more when a device hangs. `degraded` says why it works without what should make it fast, or is "". `plan`
    is what the models take of the devices, once that is known.
    """

    state: EngineState
    detail: str = ""
    progress: float = 0.0
    n_in_flight: int = 0
    n_restarts: int = 0
    quiet_s: float = 0.0
    degraded: str = ""
    plan: Planned | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Sums over all requests that ended since the client started, and what is going on now.

    `timings` has the requests that failed, too, as far as their events told.
    """

    n_finished: int = 0
    n_cancelled: int = 0
    n_failed: int = 0
    timings: Timings = NO_TIMINGS
    n_in_flight: int = 0
    n_restarts: int = 0


StatusHandler = Callable[[EngineStatus], None]


class EngineClient(ABC):
    """Submits requests to an engine and hands out what it answers.

    Thread-safe. A submitted request gets any number of events, the last of which is a StepEvent with
    `finish` or a Failed. Handlers run on the client's reader thread and must not block.
    """

    def __init__(self, on_status: StatusHandler | None = None, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._on_status = on_status
        self._max_in_flight = max_in_flight
        self._changed = threading.Condition()
        self._in_flight: dict[str, InFlight] = {}
        self._status = EngineStatus(EngineState.LOADING)
        self._stats = EngineStats()
        self._load = EngineLoad()
        self._info: EngineInfo | None = None
        self._error: LuceboxError | None = None
        self._refusal: LuceboxError | None = None  # of requests, while AWAY
        self._heard_s = time.monotonic()  # when the engine last said something, or had no request

    @abstractmethod
    def start(self) -> None:
        """Begins to load, and returns at once."""

    @abstractmethod
    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the engine and every request, and waits until its memory is free. Idempotent."""

    @abstractmethod
    def _send(self, message: Message) -> None:
        """Hands `message` to the engine without blocking; may drop it when there is none."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def wait_ready(self, timeout_s: float | None = None) -> EngineInfo:
        """Waits for the models to be loaded.

        Raises the error that loading met, with its type; EngineError after `timeout_s` or once closed.
        """
        with self._changed:
            settled = self._changed.wait_for(lambda: self._info is not None or self._is_over(), timeout_s)
            if self._is_over():
                raise self._error or EngineError("the engine was closed")
            if not settled or self._info is None:
                raise EngineError(f"the engine was not ready after {timeout_s} s: {self._status.detail}")
            return self._info

    def submit(self, request: Request, on_event: EventHandler) -> None:
        """Queues `request`, even while the engine is loading or restarting.

        Raises EngineError when the engine is gone or away, QueueFullError when as many wait as may, and
        ValueError for a used id.
        """
        with self._changed:
            if self._is_over():
                raise self._error or EngineError("the engine was closed")
            if self._refusal is not None:
                raise self._refusal
            if request.id in self._in_flight:
                raise ValueError(f"request id {request.id!r} is in use")
            if len(self._in_flight) >= self._max_in_flight:
                raise QueueFullError(len(self._in_flight))
            if not self._in_flight:
                self._heard_s = time.monotonic()
            self._in_flight[request.id] = InFlight.of(request, on_event)
            self._send(request)

    def cancel(self, id: str) -> None:
        """Ends a request; its last event says `cancelled`. An id that is unknown or has ended is ignored."""
        with self._changed:
            if id in self._in_flight:
                self._in_flight[id].is_cancelled = True
                self._send(Cancel(id))

    def status(self) -> EngineStatus:
        """Where the engine stands now."""
        with self._changed:
            n_in_flight = len(self._in_flight)
            quiet_s = time.monotonic() - self._heard_s if n_in_flight else 0.0
            return replace(self._status, n_in_flight=n_in_flight, quiet_s=quiet_s)

    def stats(self) -> EngineStats:
        """Sums over all requests that ended, and what is going on now."""
        with self._changed:
            return replace(self._stats, n_in_flight=len(self._in_flight), n_restarts=self._status.n_restarts)

    def load(self) -> EngineLoad:
        """What the engine was busy with when it last said so, at most a fifth of a second ago if it steps;
        without numbers before it was ready, and while there is none."""
        with self._changed:
            return self._load

    # For the transports.

    def _is_over(self) -> bool:
        return self._status.state in (EngineState.FAILED, EngineState.STOPPED)

    def _set_status(
        self,
        state: EngineState,
        detail: str = "",
        progress: float = 0.0,
        *,
        info: EngineInfo | None = None,
        n_deaths: int = 0,
    ) -> None:
        with self._changed:
            if self._is_over():
                return
            self._info = info or self._info
            self._change_status(state, detail, progress, n_deaths)
        self._report_status()

    def _change_status(
        self, state: EngineState, detail: str, progress: float = 0.0, n_deaths: int = 0
    ) -> None:
        """As `_set_status`, by who holds the lock and reports later. While requests are refused, an engine
        that restarts is AWAY."""
        if state is EngineState.READY:
            self._refusal = None
        else:
            self._load = EngineLoad()
        if state is EngineState.RESTARTING and self._refusal is not None:
            state = EngineState.AWAY
        n_restarts = self._status.n_restarts + n_deaths
        self._heard_s = time.monotonic()
        self._status = replace(
            self._status, state=state, detail=detail, progress=progress, n_restarts=n_restarts
        )
        self._changed.notify_all()

    def _set_degraded(self, reason: str) -> None:
        with self._changed:
            if self._status.degraded == reason:
                return
            self._status = replace(self._status, degraded=reason)
        self._report_status()

    def _set_plan(self, plan: Planned) -> None:
        with self._changed:
            self._status = replace(self._status, plan=plan)
        self._report_status()

    def _note_load(self, load: EngineLoad) -> None:
        with self._changed:
            self._load = load

    def _report_status(self) -> None:
        if self._on_status is None:
            return
        try:
            self._on_status(self.status())
        except Exception:
            logger.exception("the status handler failed")

    def _dispatch(self, event: Event) -> None:
        """Brings one event of the engine to whom it concerns."""
        match event:
            case Loading():
                self._set_status(EngineState.LOADING, event.stage, event.fraction)
            case Planned():
                self._set_plan(event)
            case Ready():
                self._set_status(EngineState.READY, progress=1.0, info=event.info)
            case Degraded():
                self._set_degraded(event.reason)
            case EngineLoad():
                self._note_load(event)
            case StepEvent() | Embedded():
                self._deliver(event.id, event)
            case Failed(id=None):
                self._give_up(event.error())
            case Failed():
                assert event.id is not None
                self._deliver(event.id, event)

    def _deliver(self, id: str, event: RequestEvent) -> None:
        with self._changed:
            self._heard_s = time.monotonic()
            request = self._in_flight.get(id)
            if request is None:
                return
            if isinstance(event, StepEvent):
                event = request.note(event)
            if is_last(event):
                del self._in_flight[id]
                self._count(event, request)
        self._hand(request, event)

    def _hand(self, request: InFlight, event: RequestEvent) -> None:
        try:
            request.on_event(event)
        except Exception:
            id = request.request.id
            logger.exception("the event handler of request %s failed; the request is cancelled", id)
            self.cancel(id)

    def _count(self, event: RequestEvent, request: InFlight) -> None:
        stats = self._stats
        if isinstance(event, Embedded):
            self._stats = replace(stats, n_finished=stats.n_finished + 1)
            return
        if isinstance(event, Failed) or event.finish is None or event.finish.reason == "error":
            timings = stats.timings + request.carried + request.seen
            self._stats = replace(stats, n_failed=stats.n_failed + 1, timings=timings)
            return
        cancelled = event.finish.reason == "cancelled"
        self._stats = EngineStats(
            stats.n_finished + (not cancelled),
            stats.n_cancelled + cancelled,
            stats.n_failed,
            stats.timings + event.finish.timings,
        )

    def _lost(self, reason: str) -> int:
        """The engine died of `reason`. Fails the requests that seem to be what kills it, and says how many.

        Suspects are as many as run at once: those known to have run, then others in the order they came.
        """
        with self._changed:
            n_running = self._info.n_parallel if self._info else 0
            reported = {slot.request for slot in self._load.slots}
            suspects = sorted(
                self._in_flight.items(), key=lambda item: not (item[1].has_answered or item[0] in reported)
            )
            doomed = []
            for id, request in suspects[:n_running]:
                request.n_deaths += 1
                if request.n_deaths >= MAX_DEATHS_PER_REQUEST:
                    doomed.append(id)
        error = EngineError(f"the engine died {MAX_DEATHS_PER_REQUEST} times on this request: {reason}")
        for id in doomed:
            self._deliver(id, Failed.of(id, error))
        return len(doomed)

    def _resubmit(self) -> None:
        """Sends everything in flight to a new engine, which goes on where the dead one stopped."""
        with self._changed:
            requests = list(self._in_flight.values())
            for request in requests:
                request.carried += request.seen
                request.seen, request.last_time_ms = NO_TIMINGS, 0.0
                self._send(request.again())
                if request.is_cancelled:
                    self._send(Cancel(request.request.id))

    def _give_up(self, error: LuceboxError, state: EngineState = EngineState.FAILED) -> None:
        """The engine cannot go on: every request fails with `error`, and so does every later call."""
        with self._changed:
            if self._error is None:
                self._error = error
        self._set_status(state, str(error))
        self._fail_all(error)

    def _turn_away(self, error: LuceboxError, still: Callable[[], bool] = lambda: True) -> None:
        """Until the engine is ready again, every request fails with `error`, those that wait included.

        Unless it is `still` so when nobody else can change it.
        """
        with self._changed:
            if not still():
                return
            self._refusal = error
            failed = self._take_all(error)
            self._change_status(EngineState.AWAY, str(error))
        self._report_status()
        self._hand_all(failed)

    def _fail_all(self, error: LuceboxError) -> None:
        with self._changed:
            failed = self._take_all(error)
        self._hand_all(failed)

    def _take_all(self, error: LuceboxError) -> list[tuple[InFlight, Failed]]:
        """Ends every request; what they are to be told."""
        failed = [(request, Failed.of(id, error)) for id, request in self._in_flight.items()]
        self._in_flight.clear()
        for request, event in failed:
            self._send(Cancel(request.request.id))
            self._count(event, request)
        return failed

    def _hand_all(self, failed: list[tuple[InFlight, Failed]]) -> None:
        for request, event in failed:
            self._hand(request, event)
