"""Requests to a URL that there is not, or not with their method: which one was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from lucebox.server.errors import ApiError, error_response
from lucebox.server.operation import Operation
from lucebox.server.paths import route_path

MAX_LENGTH = 200  # of a path that is worth guessing about, or showing, in characters
VERSION = "/v1"
_SLASHES = re.compile("/+")
_CHAT, _TEXT = f"{VERSION}/chat/completions", f"{VERSION}/completions"

# The ends of paths of Ollama, llama.cpp and others that are called otherwise here.
_ELSEWHERE: Mapping[str, str] = {
    "/api/chat": _CHAT,
    "/chat": _CHAT,
    "/api/generate": _TEXT,
    "/generate": _TEXT,
    "/completion": _TEXT,
    "/infill": _TEXT,
    "/api/embed": f"{VERSION}/embeddings",
    "/embedding": f"{VERSION}/embeddings",
    "/api/tags": f"{VERSION}/models",
    "/api/show": f"{VERSION}/models",
    "/api/ps": "/slots",
    "/healthz": "/health",
    "/docs": "/openapi.json",
    "/redoc": "/openapi.json",
    "/swagger": "/openapi.json",
    "/api-docs": "/openapi.json",
}


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals."""
    assert isinstance(error, HTTPException)
    path, routes = route_path(request.scope), request.app.routes
    asked = f"{request.method} {request.url.path[:MAX_LENGTH]}"
    match error.status_code:
        case 404:
            hint = url_hint(path, routes, request.scope.get("root_path", ""))
            message, code = f"Invalid URL ({asked}).{hint}", "unknown_url"
        case 405:
            methods = " or ".join(allowed_methods(path, routes))
            message, code = f"Not allowed: {asked}. This URL takes {methods}.", "method_not_supported"
        case _:
            message, code = error.detail, "http_error"
    return error_response(ApiError(message, status=error.status_code, code=code, headers=error.headers))


def url_hint(path: str, routes: Iterable[BaseRoute], root_path: str = "") -> str:
    """A sentence or two on `path`, which none of `routes` has, behind a blank; "" where nothing is alike.
    `path` is behind `root_path`, where a proxy shows the server."""
    if len(path) > MAX_LENGTH:
        return ""
    operations = [route for route in routes if isinstance(route, Operation)]
    clean = _SLASHES.sub("/", path).rstrip("/").lower()
    if clean == VERSION:
        return f" That is a client's base URL: clients add a path, as in {root_path}{_CHAT}."
    found = _found(clean, operations)
    if found is None:
        return ""
    return f" Did you mean {root_path}{found}?{_advice(clean, found)}"


def allowed_methods(path: str, routes: Iterable[BaseRoute]) -> list[str]:
    """What may be done at `path`."""
    here = {"type": "http", "path": path, "root_path": "", "method": ""}
    matching = [
        route for route in routes if isinstance(route, Route) and route.matches(here)[0] != Match.NONE
    ]
    return sorted({method for route in matching for method in route.methods or ()} - {"HEAD"})


def _found(clean: str, operations: Sequence[Operation]) -> str | None:
    for candidate in _candidates(clean):
        if any(operation.path_regex.match(candidate) for operation in operations):
            return candidate
    if foreign := _ELSEWHERE.get(clean.removeprefix(VERSION)):
        return foreign
    paths = [operation.path for operation in operations if "{" not in operation.path]
    if close := get_close_matches(clean, paths, n=1, cutoff=0.8):
        return close[0]
    return next((path for end, path in _ELSEWHERE.items() if clean.endswith(end)), None)


def _candidates(clean: str) -> Iterator[str]:
    """`clean`, and what is left of it without its first parts, each with the version before it, too."""
    parts = clean.split("/")[1:]
    for i in range(len(parts)):
        rest = "/" + "/".join(parts[i:])
        yield rest
        yield VERSION + rest


def _advice(clean: str, found: str) -> str:
    """What a client's base URL has too much, or too little."""
    if not found.startswith(VERSION) or clean == found:
        return ""
    if found == VERSION + clean:
        return f" Add {VERSION} to the client's base URL."
    if clean.endswith(found):
        return f" Take {clean.removesuffix(found)} off the client's base URL."
    return ""
