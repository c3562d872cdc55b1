"""Errors as OpenAI's API words them: {"error": {"message", "type", "param", "code"}}, with a status."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from lucebox.errors import ConfigError, LuceboxError, RequestError, TemplateError
from lucebox.server.access import record_of
from lucebox.terminal import printable

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2
_MAX_NOTE_LENGTH = 200  # characters of a refusal that the access log repeats
_FOLDERS = re.compile(r"(?<![\w.:/])(?!/v1/)(?:[A-Za-z]:)?[/\\](?:[^\s/\\:'\"()]+[/\\])+")


class ErrorBody(msgspec.Struct, frozen=True):
    """What stands under "error"."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    error: ErrorBody


class ApiError(LuceboxError):
    """A request cannot be answered: the HTTP status, and OpenAI's `param` and `code`."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})


class ClientGoneError(LuceboxError):
    """The client closed the connection before it was answered."""


def api_error(error: LuceboxError) -> ApiError:
    """`error` as a client may see it: with a status, and without this machine's folders."""
    match error:
        case ApiError():
            return error
        case RequestError():
            return ApiError(str(error), param=error.param, code=error.code)
        case TemplateError():
            return ApiError(without_folders(str(error)), param="messages", code="invalid_value")
        case ConfigError():
            return ApiError(without_folders(str(error)), param="speculative", code="invalid_value")
        case _:
            return unavailable(str(error), code="engine_error")


def unavailable(message: str, *, code: str) -> ApiError:
    """503, to be tried again soon."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(without_folders(message), status=503, code=code, headers=headers)


def without_folders(text: str) -> str:
    """`text` with every absolute path cut to its last name: what a client learns ends at the API."""
    return _FOLDERS.sub("", text)


def envelope(error: ApiError) -> ErrorEnvelope:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return ErrorEnvelope(ErrorBody(error.message, kind, error.param, error.code))


def error_response(error: ApiError) -> Response:
    body = msgspec.json.encode(envelope(error))
    return Response(body, error.status, error.headers, "application/json")


async def on_lucebox_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LuceboxError)
    if isinstance(error, ClientGoneError):
        return Response(status_code=499)
    shown = api_error(error)
    if shown.status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, error)
    else:
        record_of(request.scope).note = printable(shown.message)[:_MAX_NOTE_LENGTH]
    return error_response(shown)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            message, code = f"Invalid URL ({request.method} {request.url.path})", "unknown_url"
        case 405:
            message, code = f"Not allowed to {request.method} on {request.url.path}", "method_not_supported"
        case _:
            message, code = error.detail, "http_error"
    return error_response(ApiError(message, status=error.status_code, code=code, headers=error.headers))


async def on_bug(request: Request, error: Exception) -> Response:
    """Ours. The traceback goes to the log, the request's id to the client."""
    return error_response(internal_error(request.scope))


def internal_error(scope: Scope) -> ApiError:
    id = scope.get("request_id", "")
    return ApiError(f"Internal error; the server's log says more about request {id}", status=500)
