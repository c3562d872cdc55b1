"""Ending quickly: after a signal to stop, requests get a moment, then an error that says why."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from lucebox.errors import EngineError
from lucebox.server.service import Service

logger = logging.getLogger(__name__)

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def ending_requests_on_signals(service: Service, drain_s: float) -> Iterator[None]:
    """Ends the requests of `service` `drain_s` after SIGTERM or SIGINT, and at once after a second one.

    ASGI servers wait for running requests, by default forever, and tell the application only afterwards. So
    this listens too, and passes the signal on to the server's own handler. Outside of the main thread, where
    signals cannot be listened to, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    previous: dict[int, Handler] = {}
    stop = Stop(loop, service, drain_s)

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        previous[number](number, frame)

    watched: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
    for number in watched:
        handler = signal.getsignal(number)
        if callable(handler):
            previous[number] = handler
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


class Stop:
    """What a signal to stop does to requests. On the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, service: Service, drain_s: float) -> None:
        self._loop = loop
        self._service = service
        self._drain_s = drain_s
        self._was_called = False

    def __call__(self) -> None:
        if self._was_called:
            logger.info("stopping at once, as a second signal asks for; requests that run are ended")
            hurried = EngineError("the server is shutting down at once and does not finish this request")
            self._service.abort(hurried, at_once=True)
            return
        self._was_called = True
        logger.info("stopping; requests that run have %g s to end (a second signal ends them)", self._drain_s)
        late = EngineError(
            f"the server is shutting down and did not finish this request in the {self._drain_s:g} s that it "
            "waited",
            remedy="send it again when the server is back, or raise the server's --drain-timeout",
        )
        self._loop.call_later(self._drain_s, self._service.abort, late)
