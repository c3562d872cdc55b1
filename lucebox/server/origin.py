"""Web pages of elsewhere, and a server without a key: they must not make it compute."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lucebox.access_rules import ANY_ORIGIN
from lucebox.server.errors import ApiError, error_response

# What browsers send anywhere without asking first (Fetch standard, CORS-safelisted request-header).
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")


class OwnPages:
    """Pure ASGI middleware: refuses what pages of origins but the server's own and `origins` send.

    403 for a foreign `Origin`, which every browser tells. 415 for a body of a type that forms can have: a
    browser asks before it sends any other to a foreign server.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
        else:
            await error_response(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is not None and not self._is_welcome(origin.lower(), headers):
            return ApiError(
                "Pages of this origin may not use this server: name it with --cors-origin, or start the "
                "server with an API key.",
                status=403,
                code="origin_not_allowed",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind in FORM_TYPES:
            return ApiError(
                f"The body's type is {kind}, which any web page could send; it must be application/json "
                "(curl: add -H 'Content-Type: application/json').",
                status=415,
                code="unsupported_content_type",
                headers={"Accept-Post": "application/json"},
            )
        return None

    def _is_welcome(self, origin: str, headers: Headers) -> bool:
        own = headers.get("host", "").strip().lower()
        is_own = origin.partition("://")[2] == own != ""
        return is_own or origin in self._origins or ANY_ORIGIN in self._origins
