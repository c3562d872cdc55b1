"""The API keys, when the server has some."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lucebox.server.errors import ApiError, error_response
from lucebox.server.paths import route_path

OPEN_PATHS = ("/", "/health", "/favicon.ico")
OPEN_FOLDER = "/static/"  # the page's own files, the same on every machine


class ApiKey:
    """Pure ASGI middleware: answers 401 to requests without one of `keys`.

    It comes as `Authorization: Bearer KEY` or, as Anthropic's clients send it, as `x-api-key: KEY`. The files
    of the page and the server's health are open.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope) or self._has_right_one(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "Incorrect or missing API key: send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error_response(error)(scope, receive, send)

    def _has_right_one(self, headers: Headers) -> bool:
        """Takes the same time wherever keys differ, and whichever of them is right."""
        found = False
        for key in _given(headers):
            digest = sha256(key.encode("latin-1")).digest()  # latin-1 on the wire
            for own in self._digests:
                found |= hmac.compare_digest(digest, own)
        return found


def _given(headers: Headers) -> Iterator[str]:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield key.strip()
    if "x-api-key" in headers:
        yield headers["x-api-key"].strip()


def _is_open(scope: Scope) -> bool:
    path = route_path(scope)
    is_open = path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
    return is_open and scope["method"] in ("GET", "HEAD")
