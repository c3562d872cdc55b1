"""Parts of requests of a type that this server does not take."""

from __future__ import annotations

from collections.abc import Iterable

from lucebox.server.errors import ApiError

# What OpenAI's and Anthropic's APIs call parts that are no text.
MEDIA = frozenset(
    (
        "image_url",
        "image",
        "input_image",
        "input_audio",
        "audio",
        "video_url",
        "file",
        "input_file",
        "document",
    )
)


def unsupported_type(at: str, kind: str, supported: Iterable[str]) -> ApiError:
    """What stands at `at` of a request is of type `kind`, and none of `supported`."""
    is_media = kind in MEDIA
    why = "and this server's models read text only" if is_media else "which this server does not take"
    return ApiError(
        f"'{at}' is of type {kind[:100]!r}, {why}. Supported types are: {', '.join(map(repr, supported))}.",
        param=at,
        code="unsupported_content_type" if is_media else "unsupported_type",
    )
