"""A request at a client that has not ended: InFlight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from lucebox.engine.messages import Request, RequestEvent, StepEvent, Submit
from lucebox.engine.timings import Timings

NO_TIMINGS = Timings()

EventHandler = Callable[[RequestEvent], None]


@dataclass(slots=True)
class InFlight:
    """A request that has not ended, with all that it takes to send it again."""

    request: Request
    on_event: EventHandler
    generated: list[int] = field(default_factory=list)
    carried: Timings = NO_TIMINGS  # spent by engines that died before they finished it
    seen: Timings = NO_TIMINGS  # spent by the engine of now, as its events tell
    last_time_ms: float = 0.0
    n_deaths: int = 0  # of engines that ran it, since its last new token
    is_cancelled: bool = False

    @classmethod
    def of(cls, request: Request, on_event: EventHandler) -> InFlight:
        return cls(request, on_event, list(request.generated) if isinstance(request, Submit) else [])

    @property
    def has_answered(self) -> bool:
        """Whether the engine of now has computed anything of it that was told."""
        return self.seen != NO_TIMINGS

    def again(self) -> Request:
        """The request for another engine, which goes on behind what was sent."""
        if isinstance(self.request, Submit):
            return msgspec.structs.replace(self.request, generated=list(self.generated))
        return self.request

    def note(self, event: StepEvent) -> StepEvent:
        """Takes account of `event`, and returns it; the last one with the timings of the whole request."""
        if event.tokens:
            self.n_deaths = 0
        self.generated.extend(event.tokens)
        elapsed_ms = event.time_ms - self.last_time_ms if self.last_time_ms else 0.0
        self.last_time_ms = event.time_ms
        self.seen += Timings(
            predicted_n=len(event.tokens),
            predicted_ms=elapsed_ms,
            n_rounds=event.n_rounds,
        )
        for drafted in event.drafted:
            self.seen += drafted.timings()
        if event.finish is None:
            return event
        return _with_timings(event, self.carried + event.finish.timings)


def _with_timings(event: StepEvent, timings: Timings) -> StepEvent:
    assert event.finish is not None
    finish = msgspec.structs.replace(event.finish, timings=timings)
    return msgspec.structs.replace(event, finish=finish)
