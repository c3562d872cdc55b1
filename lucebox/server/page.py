"""GET / and /static/…: the chat page, whose files lie beside this one. It asks nobody but this server."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Scripts and styles from the page's own folder alone, and no text that becomes markup.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",  # may be kept, and is asked for again: a server may be upgraded at any time
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page."""

    body: bytes
    media_type: str
    etag: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """All files of the page by name, read once."""
    found: dict[str, Asset] = {}
    for file in files("lucebox.server").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None and file.is_file():
            body = file.read_bytes()
            found[file.name] = Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


async def index(request: Request) -> Response:
    return _response(request, assets()[INDEX])


async def static(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    return _response(request, asset)


async def favicon(request: Request) -> Response:
    """What browsers ask for by themselves, at an API address too."""
    return _response(request, assets()["icon.svg"])


def _response(request: Request, asset: Asset) -> Response:
    headers = {**HEADERS, "ETag": asset.etag, "Content-Security-Policy": CONTENT_SECURITY_POLICY}
    if _has_it(request.headers.get("if-none-match", ""), asset.etag):
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _has_it(if_none_match: str, etag: str) -> bool:
    """RFC 9110, 13.1.2: a list of tags compared weakly, or `*`."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]


routes = (
    Route("/", index, methods=["GET"]),
    Route("/static/{name}", static, methods=["GET"]),
    Route("/favicon.ico", favicon, methods=["GET"]),
)
