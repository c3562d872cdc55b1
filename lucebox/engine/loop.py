"""Runs the engine: takes messages between steps, steps while there is work, sleeps when there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue

from lucebox.engine.admission import Admission
from lucebox.engine.messages import Cancel, Event, Failed, Message, Shutdown, Submit
from lucebox.engine.step import Stepper
from lucebox.errors import LuceboxError

logger = logging.getLogger(__name__)


class EngineLoop:
    """Serves messages of `inbox` until a Shutdown. `emit` takes events and must not block."""

    def __init__(
        self,
        stepper: Stepper,
        admission: Admission,
        inbox: SimpleQueue[Message],
        emit: Callable[[Event], None],
    ) -> None:
        self._stepper = stepper
        self._admission = admission
        self._inbox = inbox
        self._emit = emit

    def run(self) -> None:
        """Returns after a Shutdown, with every request ended."""
        while self._take_messages():
            for event in self._stepper.step():
                self._emit(event)
        scheduler = self._stepper.scheduler
        for sequence in (*scheduler.running, *scheduler.waiting):
            self._cancel(sequence.id)

    def _take_messages(self) -> bool:
        """Handles what has arrived, waiting if there is no work. False: the engine shall end."""
        while True:
            try:
                message = self._inbox.get(block=self._stepper.scheduler.is_idle)
            except Empty:
                return True
            match message:
                case Submit():
                    self._submit(message)
                case Cancel():
                    self._cancel(message.id)
                case Shutdown():
                    return False

    def _submit(self, submit: Submit) -> None:
        try:
            self._stepper.scheduler.add(self._admission.admit(submit))
        except Exception as error:
            if not isinstance(error, LuceboxError):
                logger.exception("request %s could not be started", submit.id)
            self._emit(Failed.of(submit.id, error))

    def _cancel(self, id: str) -> None:
        event = self._stepper.cancel(id)
        if event is not None:
            self._emit(event)
