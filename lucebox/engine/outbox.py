"""Events on their way to a reader, however slow: Outbox."""

from __future__ import annotations

import threading

from lucebox.engine.messages import Embedded, Event, Failed, StepEvent


class Outbox:
    """A queue that never blocks its writer and stays small.

    Events that the reader has not fetched are merged with later ones of the same request (StepEvent) or kind
    (Loading, …), so that it holds at most a few per request. Order is kept within a request. Thread-safe.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: dict[tuple[str, str | None], Event] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Adds `event`, merging it with what is waiting. Ignored once closed."""
        with self._changed:
            if self._closed:
                return
            key = _key(event)
            waiting = self._events.get(key)
            if isinstance(waiting, StepEvent) and isinstance(event, StepEvent):
                event = waiting.followed_by(event)
            self._events[key] = event
            self._changed.notify()

    def take(self) -> Event | None:
        """Waits for the oldest event; None when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed)
            if not self._events:
                return None
            return self._events.pop(next(iter(self._events)))

    def close(self) -> None:
        """No event comes after those that are waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _key(event: Event) -> tuple[str, str | None]:
    match event:
        case StepEvent():
            return ("step", event.id)
        case Embedded():
            return ("embedded", event.id)
        case Failed():
            return ("failed", event.id)
        case _:
            return (type(event).__name__, None)
