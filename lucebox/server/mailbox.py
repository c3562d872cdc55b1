"""Where the engine's thread leaves events for the server's loop: bounded, and never blocking the engine."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from lucebox.engine.messages import RequestEvent, StepEvent


class Mailbox:
    """Events of one HTTP request, by choice.

    Steps that wait for a slow client become one event, so at most two wait per choice: steps, and a failure.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: dict[int, deque[RequestEvent]] = {}
        self._arrived = asyncio.Event()

    def put(self, index: int, event: RequestEvent) -> None:
        """Takes an event of choice `index`. From any thread; returns at once."""
        with self._lock:
            was_empty = not self._waiting
            events = self._waiting.setdefault(index, deque())
            if events and isinstance(event, StepEvent) and isinstance(events[-1], StepEvent):
                events[-1] = events[-1].followed_by(event)
            else:
                events.append(event)
        if was_empty:
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def get(self, timeout_s: float | None = None) -> tuple[int, RequestEvent] | None:
        """The next event and its choice; None if none came in `timeout_s`. On the loop only."""
        await asyncio.sleep(0)  # however many wait, other requests and a disconnect have their turn
        while True:
            with self._lock:
                if self._waiting:
                    return self._pop()
                self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return None

    def _pop(self) -> tuple[int, RequestEvent]:
        """The event that waits longest; its choice goes to the end of the line."""
        index, events = next(iter(self._waiting.items()))
        del self._waiting[index]
        event = events.popleft()
        if events:
            self._waiting[index] = events
        return index, event
