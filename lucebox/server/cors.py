"""Pages of other origins that may use the server, when somebody named them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

MAX_AGE_S = 600


def cross_origin(origins: Sequence[str]) -> Middleware:
    """Answers preflights, which have no key, and lets pages of `origins` read answers. No cookies."""
    return Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("X-Request-Id", "Retry-After"),
        max_age=MAX_AGE_S,
    )
