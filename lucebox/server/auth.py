"""The API key, when the server has one."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lucebox.server.errors import ApiError, error_response

OPEN_PATHS = ("/health",)


class ApiKey:
    """Pure ASGI middleware: answers 401 to requests without `Authorization: Bearer <key>`."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_right(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "Incorrect or missing API key: send it as 'Authorization: Bearer <key>'.",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error_response(error)(scope, receive, send)

    def _is_right(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Headers are latin-1 on the wire; the comparison takes the same time wherever they differ.
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._key)
        return scheme.lower() == "bearer" and same
