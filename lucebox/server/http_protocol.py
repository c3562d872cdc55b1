"""uvicorn's HTTP/1.1 protocol with patience that ends: for clients that send slowly, or read nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from lucebox.server.errors import ApiError, envelope

MAX_CONNECTIONS = 900  # most systems let a process have 1024 files
MAX_HEAD_BYTES = 64 * 1024
MAX_FRAMING = 16  # bytes that chunks of a body may take beside each of its own
MAX_PIPELINED = 64
LINGER_S = 2.0  # how long the rest of a body is read that was answered before it had come


class PatientProtocol(HttpToolsProtocol):
    """Closes connections whose request line and headers take longer than `client_timeout_s` or more than
    MAX_HEAD_BYTES, and cuts those whose client reads nothing for as long.

    How large a body may be, and how long it may take, is the application's concern. Refusals are worded as
    OpenAI's API words errors. A subclass sets `client_timeout_s`: see `protocol`.
    """

    client_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._has_begun = False  # to send a message
        self._n_bytes = 0  # of the message that is being received, and of its body
        self._n_body_bytes = 0
        self._refusal: ApiError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    # Of the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.scheme == "http":  # uvloop's TLS would never resume, and has a limit to closing of its own
            transport.set_write_buffer_limits(high=0)  # so that whoever reads nothing is noticed
        self._await_head()
        if len(self.connections) > MAX_CONNECTIONS:
            headers = {"Retry-After": "1"}
            self._refuse(ApiError("Too many connections", status=503, code="overloaded", headers=headers))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._n_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._n_bytes - self._n_body_bytes > MAX_HEAD_BYTES + MAX_FRAMING * self._n_body_bytes:
            self._refuse(_head_too_large())
        elif self._in_head and self._head_timer is None:  # as line breaks between two requests begin none
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    # Of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_begun = True
        self._n_bytes = self._n_body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # not in the trailer of a chunked body
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > MAX_HEAD_BYTES:
            self._refusal = _head_too_large()
        elif len(self.pipeline) >= MAX_PIPELINED:
            self._refusal = ApiError("Too many requests at once on one connection", status=429)
        if self._refusal is not None:
            raise ValueError("refused")  # ends the parser; uvicorn then asks for a 400
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._has_begun = False
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # Of uvicorn.

    def on_response_complete(self) -> None:
        is_early = not self.pipeline and self.cycle.more_body
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if is_early:
            self._linger_timer = self.loop.call_later(LINGER_S, self.transport.close)
        elif self._in_head and not self._is_answering():  # the time for the next one begins now
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or ApiError("This is no HTTP request", code="invalid_http"))

    # Ours.

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.client_timeout_s, self._on_late_head)

    def _on_late_head(self) -> None:
        self._head_timer = None
        if self._is_answering():  # the head of what comes after it
            self._await_head()
        elif self._has_begun:
            message = "The request's line and headers took too long to come"
            self._refuse(ApiError(message, status=408, code="request_timeout"))
        else:
            self.transport.close()

    def _watch_writing(self, n_unread: int | None = None) -> None:
        """Cuts the connection when nothing of what was written goes out any more."""
        n_bytes = self.transport.get_write_buffer_size()
        if n_bytes == n_unread:
            self.transport.abort()
            return
        later: Callable[[], None] = lambda: self._watch_writing(n_bytes)  # noqa: E731
        self._write_timer = self.loop.call_later(self.client_timeout_s, later)

    def _refuse(self, error: ApiError) -> None:
        """Answers with `error` and closes; while another request is answered, only the latter."""
        if self._is_answering():
            self.transport.close()
            return
        body = msgspec.json.encode(envelope(error))
        headers = {
            **error.headers,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        self.transport.close()


def protocol(client_timeout_s: float) -> type[asyncio.Protocol]:
    """The protocol, for a uvicorn.Config, with a client's time set."""
    return type("PatientProtocol", (PatientProtocol,), {"client_timeout_s": client_timeout_s})


def _head_too_large() -> ApiError:
    return ApiError("The request's line and headers are too large", status=431, code="headers_too_large")
