"""How much a client may send, and how long it may take."""

from __future__ import annotations

import asyncio
import contextlib
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lucebox.server.errors import ApiError, error_response

BYTES_PER_S = 64 * 1024  # a slower body than this runs out of time
LINGER_S = 2.0  # a client that has sent too much gets to read why


class BodyLimit:
    """Pure ASGI middleware: 413 for a body of more than `max_bytes`, 408 for one that takes too long.

    A body has `timeout_s`, and a second more for each 64 KiB that have come.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and int(length[:20]) > self._max_bytes):
            await self._app(scope, self._limited(receive), send)
            return
        if "expect" not in headers:  # else it is not sent before somebody asks for it
            await _linger(receive)
        await error_response(_too_large(self._max_bytes))(scope, receive, send)

    def _limited(self, receive: Receive) -> Receive:
        n_bytes = 0
        is_complete = False
        start_s = time.monotonic()

        async def limited() -> Message:
            nonlocal n_bytes, is_complete
            if is_complete:
                return await receive()
            left_s = start_s + self._timeout_s + n_bytes / BYTES_PER_S - time.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    message = await receive()
            except TimeoutError:
                raise _too_slow() from None
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._max_bytes:
                await _linger(receive)
                raise _too_large(self._max_bytes)
            is_complete = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        return limited


async def _linger(receive: Receive) -> None:
    """Reads on for a little: a connection that is closed on unread data takes the answer with it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


def _too_large(max_bytes: int) -> ApiError:
    message = f"The request's body is larger than {max_bytes // 2**20} MiB (--max-body)"
    return ApiError(message, status=413, code="request_too_large", headers={"Connection": "close"})


def _too_slow() -> ApiError:
    return ApiError(
        "The request's body took too long to come",
        status=408,
        code="request_timeout",
        headers={"Connection": "close"},
    )
