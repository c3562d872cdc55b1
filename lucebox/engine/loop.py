"""Runs the engine: takes messages between steps, steps while there is work, sleeps when there is none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from lucebox.engine.admission import Admission
from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.messages import Cancel, Embed, Event, Failed, Message, Ping, Request, Shutdown, Submit
from lucebox.engine.preparation import Preparation, Preparing
from lucebox.engine.pulse import Pulse
from lucebox.engine.step import Stepper
from lucebox.errors import LuceboxError

logger = logging.getLogger(__name__)

LOAD_PERIOD_S = 0.2  # between two reports of what the engine is busy with


class EngineLoop:
    """Serves messages of `inbox` until a Shutdown. `emit` takes events and must not block. No request takes
    longer than `timeout_s`, the compilation of its grammar included."""

    def __init__(
        self,
        stepper: Stepper,
        admission: Admission,
        inbox: SimpleQueue[Message],
        emit: Callable[[Event], None],
        *,
        timeout_s: float | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._stepper = stepper
        self._admission = admission
        self._inbox = inbox
        self._emit = emit
        self._timeout_s = timeout_s
        self._pulse = pulse or Pulse()
        self._preparation = Preparation(admission.grammars, wake=lambda: inbox.put(Ping()))
        self._reported = EngineLoad()
        self._reported_s = -LOAD_PERIOD_S

    def run(self) -> None:
        """Returns after a Shutdown, with every request ended."""
        try:
            while self._take_messages():
                self._expire()
                with self._pulse.step():
                    events = self._stepper.step()
                self._emit_all(events)
            scheduler = self._stepper.scheduler
            ids = [sequence.id for sequence in (*scheduler.running, *scheduler.waiting)]
            for id in (*ids, *self._preparation.ids):
                self._cancel(id)
        finally:
            self._preparation.close()

    def _take_messages(self) -> bool:
        """Handles what has arrived, waiting if there is no work. False: the engine shall end."""
        while True:
            for prepared in self._preparation.take():
                self._admit(prepared)
            self._report_load()  # behind each message: a cancel may end what no step will tell of
            try:
                message = self._inbox.get(block=self._stepper.scheduler.is_idle, timeout=self._patience_s())
            except Empty:
                return True
            match message:
                case Submit() | Embed():
                    self._begin(message)
                case Cancel():
                    self._cancel(message.id)
                case Ping():
                    pass  # a grammar is compiled
                case Shutdown():
                    return False

    def _patience_s(self) -> float | None:
        """How long to wait for a message: while grammars are compiled, requests may be late."""
        return LOAD_PERIOD_S if self._preparation.n_requests else None

    def _expire(self) -> None:
        if self._timeout_s is not None:
            self._emit_all(self._preparation.expire(self._timeout_s))
            self._emit_all(self._stepper.expire(self._timeout_s))

    def _emit_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._emit(event)

    def _report_load(self) -> None:
        """Says what the engine is busy with, if that is due, or if it has just become idle."""
        now_s, n_preparing = time.monotonic(), self._preparation.n_requests
        is_idle = self._stepper.scheduler.is_idle and not n_preparing
        if now_s - self._reported_s < LOAD_PERIOD_S and not is_idle:
            return
        load = self._stepper.load()
        load = replace(load, n_waiting=load.n_waiting + n_preparing)
        if load != self._reported:
            self._emit(load)
            self._reported, self._reported_s = load, now_s

    def _begin(self, request: Request) -> None:
        with self._blaming(request.id):
            match request:
                case Embed():
                    self._stepper.scheduler.add(self._admission.admit_text(request))
                case Submit():
                    prepared = self._preparation.begin(request)
                    if prepared is not None:
                        self._admit(prepared)

    def _admit(self, prepared: Preparing) -> None:
        """The request waits for its turn since it arrived."""
        with self._blaming(prepared.submit.id):
            sequence = self._admission.admit(prepared.submit, prepared.matcher())
            sequence.clock = prepared.clock
            self._stepper.scheduler.add(sequence)

    @contextmanager
    def _blaming(self, id: str) -> Iterator[None]:
        """What goes wrong within fails request `id` and no other."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, LuceboxError):
                logger.exception("request %s could not be started", id)
            self._emit(Failed.of(id, error))

    def _cancel(self, id: str) -> None:
        event = self._preparation.cancel(id) or self._stepper.cancel(id)
        if event is not None:
            self._emit(event)
