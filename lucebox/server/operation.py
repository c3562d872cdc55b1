"""A route that says what it takes and gives, for the OpenAPI document and the README: Operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucebox.server.errors import ErrorEnvelope

Endpoint = Callable[[Request], Awaitable[Response]]

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What goes in and out, as types that msgspec can describe; None for what there is not.

    `body` and `answer` are JSON, and so are the data of server-sent `events`, if the body asks to `stream`;
    `last_event` is a word that ends them. `answer` is text where `media_type` says so, and of another type
    with the statuses in `others`. `example` is a body that can be answered.
    """

    body: Any = None
    example: Any = None
    answer: Any = None
    events: Any = None
    last_event: str | None = None
    error: Any = ErrorEnvelope
    media_type: str = JSON
    others: Mapping[int, Any] = field(default_factory=lambda: MappingProxyType({}))

    def types(self) -> tuple[Any, ...]:
        """All that have a schema."""
        every = (self.body, self.answer, self.events, self.error, *self.others.values())
        return tuple(kind for kind in every if kind is not None)


class Operation(Route):
    """A route of one `method` that does what `summary` says in a few words, by `contract`."""

    def __init__(
        self, method: str, path: str, endpoint: Endpoint, summary: str, contract: Contract | None = None
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.summary = summary
        self.contract = contract or Contract()
