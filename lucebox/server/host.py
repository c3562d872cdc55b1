"""Which Host a local server answers to: a web page must not reach it under a name of its own."""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lucebox.server.errors import ApiError, error_response


class LocalHost:
    """Pure ASGI middleware against DNS rebinding: answers 403 to requests at the loopback for a foreign Host.

    `localhost` and loopback addresses are its own names, with any port. Requests that arrive at another
    address are let through. Starlette's TrustedHostMiddleware would not do: it cannot parse `[::1]:8080`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _at_loopback(scope) or _is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "This server answers to the name localhost only; start it with an API key to use another.",
            status=403,
            code="host_not_allowed",
        )
        await error_response(error)(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine itself and nothing that others reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_every_address(host: str) -> bool:
    """Whether `host` stands for all of this machine's addresses, as 0.0.0.0 and :: do."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name or address in a Host header: in lower case, without port, brackets and final dot."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _is_own(headers: Headers) -> bool:
    given = headers.get("host")
    return given is None or is_loopback(host_name(given))  # no browser leaves it out


def _at_loopback(scope: Scope) -> bool:
    """By the socket's own address: the configured one says little if another program made the socket."""
    server = scope.get("server")
    return server is not None and is_loopback(server[0])
