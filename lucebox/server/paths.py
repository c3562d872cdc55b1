"""Paths of requests: where a reverse proxy or another application mounted this one, and what is behind it."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def route_path(scope: Scope) -> str:
    """The path behind the scope's `root_path`, which is what routes are about."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :] or "/"
    return path


class RootPath:
    """Pure ASGI middleware for a server that a proxy shows under `root_path`, whether or not it strips it."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not scope.get("root_path"):
            scope = dict(scope, root_path=self._root_path)
            path = scope["path"]
            if path == self._root_path and scope["type"] == "http":  # the page's links are relative
                await RedirectResponse(self._root_path + "/")(scope, receive, send)
                return
            if not path.startswith(self._root_path + "/"):
                scope["path"] = self._root_path + path
        await self._app(scope, receive, send)
