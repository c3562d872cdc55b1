"""Errors as OpenAI's API words them: {"error": {"message", "type", "param", "code"}}, with a status."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lucebox.errors import (
    ConfigError,
    LuceboxError,
    QueueFullError,
    RequestError,
    RequestTimeoutError,
    TemplateError,
)
from lucebox.server import anthropic_errors
from lucebox.server.access import record_of
from lucebox.terminal import printable

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 2
_MAX_NOTE_LENGTH = 200  # characters
_MAX_MESSAGE_LENGTH = 1000  # characters: a message may quote what was sent
_MAX_PARAM_LENGTH = 200  # characters
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
        super().__init__(_clipped(message, _MAX_MESSAGE_LENGTH))
        self.status = status
        self.param = None if param is None else _clipped(param, _MAX_PARAM_LENGTH)
        self.code = code
        self.headers = dict(headers or {})


def invalid(param: str, message: str) -> ApiError:
    """What stands at `param` of a request cannot be taken."""
    return ApiError(message, param=param, code="invalid_value")


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
        case QueueFullError():
            return overloaded(str(error))
        case RequestTimeoutError():
            return unavailable(str(error), code="request_timeout")
        case _:
            return unavailable(str(error), code="engine_error")


def unavailable(message: str, *, code: str) -> ApiError:
    """503, to be tried again soon."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(without_folders(message), status=503, code=code, headers=headers)


def overloaded(message: str) -> ApiError:
    """429, to be tried again soon."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(message, status=429, code="rate_limit_exceeded", headers=headers)


def without_folders(text: str) -> str:
    """`text` with every absolute path cut to its last name: what a client learns ends at the API."""
    return _FOLDERS.sub("", text)


def _clipped(text: str, n_chars: int) -> str:
    return text if len(text) <= n_chars else f"{text[: n_chars - 1]}…"


def envelope(error: ApiError) -> ErrorEnvelope:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    if error.status == 429:
        kind = "rate_limit_error"
    return ErrorEnvelope(ErrorBody(error.message, kind, error.param, error.code))


class ErrorResponse(Response):
    """An error in the words of the API that the request is for."""

    def __init__(self, error: ApiError) -> None:
        body = msgspec.json.encode(envelope(error))
        super().__init__(body, error.status, error.headers, "application/json")
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if anthropic_errors.is_spoken_at(scope["path"]):
            error = self._error
            id = scope.get("request_id")
            words = anthropic_errors.envelope(error.status, error.message, code=error.code, request_id=id)
            self.body = msgspec.json.encode(words)
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def error_response(error: ApiError) -> Response:
    return ErrorResponse(error)


def note_of(error: ApiError) -> str:
    """What the log says of a refusal: which rule and field, not the message, which may quote a prompt."""
    if error.status >= 500:
        return error.message
    return printable(f"{error.code or 'refused'}: {error.param or '-'}")[:_MAX_NOTE_LENGTH]


async def on_lucebox_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LuceboxError)
    if isinstance(error, ClientGoneError):
        return Response(status_code=499)
    shown = api_error(error)
    if shown.status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, error)
    else:
        record_of(request.scope).note = note_of(shown)
    return error_response(shown)


async def on_bug(request: Request, error: Exception) -> Response:
    """Ours. The traceback goes to the log, the request's id to the client."""
    response = error_response(internal_error(request.scope))
    response.headers["X-Request-Id"] = request.scope.get("request_id", "")  # outside of the access log
    return response


def internal_error(scope: Scope) -> ApiError:
    id = scope.get("request_id", "")
    return ApiError(f"Internal error; the server's log says more about request {id}", status=500)
