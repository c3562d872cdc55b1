"""A response of JSON, as msgspec writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response


def json_response(
    body: msgspec.Struct | Sequence[msgspec.Struct], headers: Mapping[str, str] | None = None
) -> Response:
    """Status 200."""
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")
