"""Counts requests by route, method and status."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lucebox.server.tally import Tally

UNKNOWN = "unknown"
_METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")


class Measured:
    """Pure ASGI middleware. Paths that no route has count as one, so that nobody can make the tally grow."""

    def __init__(self, app: ASGIApp, tally: Tally, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._tally = tally
        self._routes = [route for route in routes if isinstance(route, Route)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 499  # the client left before it was answered

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting_status)
        except Exception:
            status = 500
            raise
        finally:
            method = scope["method"] if scope["method"] in _METHODS else UNKNOWN
            self._tally.requests[self._path(scope), method, status] += 1

    def _path(self, scope: Scope) -> str:
        for route in self._routes:
            if route.matches(scope)[0] is not Match.NONE:
                return route.path
        return UNKNOWN
