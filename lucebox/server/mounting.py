"""Starting an application that something else runs: mounted, or by a server without lifespan events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from lucebox.server.errors import ApiError, error_response

if TYPE_CHECKING:
    from lucebox.server.application import EnvironmentApp
    from lucebox.server.service import Service


@asynccontextmanager
async def lifespan(app: Starlette | EnvironmentApp) -> AsyncIterator[None]:
    """Runs `app`, which `create_app` made or which is `lucebox.server.app`, as part of another application.

    A mounted application's own lifespan does not run, so the outer one's has to enter this. Loading begins,
    and goes on in the background; leaving it frees everything.
    """
    inner = app if isinstance(app, Starlette) else await app.prepare()
    async with inner.router.lifespan_context(inner):
        yield


class Started:
    """Pure ASGI middleware: 503 with what to do about it while the lifespan of `service` has not run."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._service.is_started:
            await self._app(scope, receive, send)
        else:
            await error_response(never_started())(scope, receive, send)


def never_started() -> ApiError:
    return ApiError(
        "This application was never started: its lifespan has not run. One that is mounted in another needs "
        "`async with lucebox.server.lifespan(app)` in the lifespan of the outer one; a server must run "
        "lifespan events (uvicorn: no `--lifespan off`).",
        status=503,
        code="not_started",
    )
