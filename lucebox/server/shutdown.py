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

DRAIN_S = 3.0

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def ending_requests_on_signals(service: Service, drain_s: float = DRAIN_S) -> Iterator[None]:
    """Ends the requests of `service` `drain_s` after SIGTERM or SIGINT.

    ASGI servers wait for running requests, by default forever, and tell the application only afterwards. So
    this listens too, and passes the signal on to the server's own handler. Outside of the main thread, where
    signals cannot be listened to, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    previous: dict[int, Handler] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(_abort_later, loop, service, drain_s)
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


def _abort_later(loop: asyncio.AbstractEventLoop, service: Service, drain_s: float) -> None:
    logger.info("stopping; requests that run have %g s to end", drain_s)
    loop.call_later(drain_s, service.abort, EngineError("the server is shutting down"))
