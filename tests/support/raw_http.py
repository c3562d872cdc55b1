"""Clients that keep no rules: bytes over a socket, as slowly, as little and as wrongly as wanted."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

LIMIT_S = 30.0
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Statuses of what was answered, in order; whether the server closed the connection; all that came."""

    statuses: tuple[int, ...]
    closed: bool
    received: bytes = b""

    @property
    def is_answered(self) -> bool:
        return bool(self.statuses)


class RawClient:
    """One connection to (host, port)."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, LIMIT_S)
        self._deadline_s = time.monotonic() + LIMIT_S

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, pieces: bytes | Iterable[bytes], delay_s: float = 0.0) -> bool:
        """False once the server has closed the connection."""
        try:
            for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
                self.socket.sendall(piece)
                time.sleep(delay_s)
                if time.monotonic() > self._deadline_s:
                    return True
        except OSError:
            return False
        return True

    def read(self, n_answers: int = 1) -> Outcome:
        """Reads until the server closes the connection, or `n_answers` are complete."""
        received, closed = b"", False
        while _n_complete(received) < n_answers:
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                break
            self.socket.settimeout(left_s)
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                break
            except OSError:
                data = b""
            if not data:
                closed = True
                break
            received += data
        return Outcome(tuple(map(int, _STATUS.findall(received))), closed, received)

    def finish_writing(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)


def request(
    method: str, path: str, body: bytes = b"", headers: str = "", *, length: int | None = None
) -> bytes:
    """A well-formed request, but for what is asked for."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}"
    if body or length is not None:
        head += (
            f"Content-Type: application/json\r\nContent-Length: {len(body) if length is None else length}\r\n"
        )
    return head.encode("latin-1") + b"\r\n" + body


def _n_complete(received: bytes) -> int:
    """How many whole answers, of a known length or chunked, these bytes hold."""
    n = 0
    while True:
        head, found, rest = received.partition(b"\r\n\r\n")
        if not found:
            return n
        if head.startswith(b"HTTP/1.1 100 "):
            received = rest
            continue
        if length := re.search(rb"content-length: (\d+)", head, re.IGNORECASE):
            if len(rest) < int(length[1]):
                return n
            received = rest[int(length[1]) :]
        else:
            _, ended, received = rest.partition(b"0\r\n\r\n")
            if not ended:
                return n
        n += 1
