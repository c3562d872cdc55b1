"""Errors as Anthropic's API words them: {"type": "error", "error": {"type", "message"}}, with a status."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

PATH = "/v1/messages"
_END = "/messages"  # whatever a wrong base URL puts before it
# The official client sends the whole conversation where this is refused; other codes it needs not know.
NO_THREADS = "thread_unsupported_request"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorDetails(msgspec.Struct, frozen=True):
    error_code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """What stands under "error"."""

    type: str
    message: str
    details: ErrorDetails | UnsetType = UNSET


class ErrorEnvelope(msgspec.Struct, tag_field="type", tag="error", frozen=True):
    error: ErrorBody
    request_id: str | None


def is_spoken_at(path: str) -> bool:
    """Whether clients of `path` expect errors in these words, wherever the application is mounted."""
    return path.endswith(_END) or f"{_END}/" in path


def envelope(
    status: int, message: str, *, code: str | None = None, request_id: str | None = None
) -> ErrorEnvelope:
    other = "api_error" if status >= 500 else "invalid_request_error"
    details = ErrorDetails(code) if code == NO_THREADS else UNSET
    return ErrorEnvelope(ErrorBody(_TYPES.get(status, other), message, details), request_id)
