"""GET /health: whether requests are answered now, and if not, why."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox import __version__
from lucebox.engine.client import EngineState
from lucebox.server.errors import RETRY_AFTER_S, without_folders
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service


class Health(msgspec.Struct, frozen=True):
    """`progress` runs from 0 to 1 while loading `detail`; else `detail` says why the engine is not ready.

    `quiet_s`: how long the engine has been silent with requests in flight; a hung device shows here.
    `degraded`: why it answers slower than it was meant to, as without a draft model that was lost, or why it
    may not answer at all, as an engine that has been silent for seconds; else "".
    """

    status: EngineState
    detail: str
    progress: float
    n_in_flight: int
    n_restarts: int
    quiet_s: float
    degraded: str
    version: str


async def health(request: Request) -> Response:
    service: Service = request.app.state.service
    status = service.status()
    body = Health(
        status.state,
        without_folders(status.detail),
        round(status.progress, 4),
        status.n_in_flight,
        status.n_restarts,
        round(status.quiet_s, 1),
        without_folders(status.degraded),
        __version__,
    )
    is_ready = status.state is EngineState.READY
    headers = {"Cache-Control": "no-store"}
    if not is_ready:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return Response(msgspec.json.encode(body), 200 if is_ready else 503, headers, "application/json")


routes = (
    Operation(
        "GET",
        "/health",
        health,
        "whether requests are answered now, and if not, why",
        Contract(answer=Health, others={503: Health}),
    ),
)
