"""The access log: one line per request, with its id, tokens, speed, and what guessing brought. Never text."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lucebox.server import anthropic_errors

if TYPE_CHECKING:
    from lucebox.engine.timings import Timings
    from lucebox.server.generation import Bill

logger = logging.getLogger(__name__)

_GIVEN_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)


@dataclass(slots=True)
class AccessRecord:
    """What is known of a request when it ends. Routes fill in `bill` and `note`."""

    bill: Bill | None = None
    note: str = ""


def record_of(scope: Scope) -> AccessRecord:
    record: AccessRecord = scope["access_record"]
    return record


class AccessLog:
    """Pure ASGI middleware. Gives each request an id (the client's own `X-Request-Id` if it is sane)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        id = given if _GIVEN_ID.fullmatch(given) else f"req_{uuid4().hex}"
        record = AccessRecord()
        scope["request_id"], scope["access_record"] = id, record
        start_s = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = id
                if anthropic_errors.is_spoken_at(scope["path"]):
                    MutableHeaders(scope=message)["request-id"] = id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            level = logging.DEBUG if scope["path"] == "/health" else logging.INFO
            if logger.isEnabledFor(level):
                total_ms = 1000 * (time.monotonic() - start_s)
                fields = _fields(scope, id, status, total_ms, record)
                line = _line(scope, id, status, total_ms, record)
                logger.log(level, "%s", line, extra={"fields": fields})


def _fields(scope: Scope, id: str, status: int, total_ms: float, record: AccessRecord) -> dict[str, Any]:
    """What a log of JSON has; `status` 0 if there was no answer."""
    fields: dict[str, Any] = {
        "request_id": id,
        "client": (scope.get("client") or ("", 0))[0],
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "total_ms": round(total_ms, 3),
    }
    if record.bill is not None:
        fields["n_prompt"] = record.bill.n_prompt
        fields["n_cached"] = record.bill.n_cached
        fields["n_completion"] = record.bill.n_completion
        fields["timings"] = msgspec.to_builtins(record.bill.timings)
    if record.note:
        fields["error"] = record.note
    return fields


def _line(scope: Scope, id: str, status: int, total_ms: float, record: AccessRecord) -> str:
    client = scope.get("client") or ("-", 0)
    parts = [f"{client[0]} {scope['method']} {scope['path']!r} {status or '-'} {total_ms:.0f} ms {id}"]
    if record.bill is not None:
        parts += _cost(record.bill)
    if record.note:
        parts.append(record.note)
    return ", ".join(parts)


def _cost(bill: Bill) -> list[str]:
    timings = bill.timings
    known = f" ({bill.n_cached} known)" if bill.n_cached else ""
    return [
        f"prompt {bill.n_prompt} tokens{known}{_speed(timings.prompt_ms, timings.prompt_per_second)}",
        f"generated {bill.n_completion}{_speed(timings.predicted_ms, timings.predicted_per_second)}",
        *(_guessing(timings) if timings.draft_n else ()),
    ]


def _speed(ms: float, per_second: float) -> str:
    """Of what was computed. Nothing for a request that ended before its engine told."""
    return f" in {ms:.0f} ms at {per_second:.1f}/s" if per_second else ""


def _guessing(timings: Timings) -> list[str]:
    names = [f"{name} {totals.n_accepted}/{totals.n_drafted}" for name, totals in timings.drafters.items()]
    return [
        f"drafts {timings.draft_n_accepted}/{timings.draft_n} accepted ({' + '.join(names)})",
        f"mean acceptance length {timings.mean_acceptance_length:.2f}",
    ]
