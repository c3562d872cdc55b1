"""Messages over a stream socket: a length of four bytes, big endian, and that many bytes of msgpack."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import Any, Generic, TypeVar

import msgspec

from lucebox.errors import EngineError

HEADER = struct.Struct(">I")
MAX_MESSAGE_BYTES = 1 << 28

Incoming = TypeVar("Incoming")


class MalformedMessageError(EngineError):
    """A whole message arrived that is none of the expected ones; the stream goes on behind it."""


class Channel(Generic[Incoming]):
    """One end of a connection. `send` from any thread; `receive` from one.

    A message of more than `max_bytes` is taken for garbage before any of it is read.
    """

    def __init__(
        self, connection: socket.socket, incoming: type[Incoming], max_bytes: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._socket = connection
        self._max_bytes = max_bytes
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        self._sending = threading.Lock()
        self._arrived = bytearray()  # of the message that is being received

    def send(self, message: object) -> None:
        """Blocks until the message is handed to the system. Raises OSError when the other end is gone.

        Text that is no Unicode, as a model file's name may be, arrives with `?` for what cannot be sent.
        """
        try:
            body = self._encoder.encode(message)
        except UnicodeEncodeError:
            body = self._encoder.encode(_encodable(msgspec.to_builtins(message, builtin_types=(bytes,))))
        with self._sending:
            self._socket.sendall(HEADER.pack(len(body)) + body)

    def receive(self, timeout_s: float | None = None) -> Incoming | None:
        """Waits for a message; None when the other end is gone.

        Raises MalformedMessageError for one message that cannot be read, EngineError for a garbled stream,
        TimeoutError when nothing comes in `timeout_s` or in the socket's own timeout: the next call goes on
        with what is there by then.
        """
        if not self._read(HEADER.size, timeout_s):
            return None
        (n_bytes,) = HEADER.unpack(self._arrived[: HEADER.size])
        if n_bytes > self._max_bytes:
            raise EngineError(f"a message claims {n_bytes} bytes, more than {self._max_bytes}")
        if not self._read(HEADER.size + n_bytes, timeout_s):
            return None
        body, self._arrived = self._arrived[HEADER.size :], bytearray()
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, ValueError) as error:
            raise MalformedMessageError(f"malformed message of {n_bytes} bytes: {error}") from error

    def close(self) -> None:
        """Wakes a `receive` that waits, on both ends. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, n_bytes: int, timeout_s: float | None) -> bool:
        """Waits until `n_bytes` of the message have arrived; False when they will not."""
        while (n_missing := n_bytes - len(self._arrived)) > 0:
            try:
                if timeout_s is not None and not _is_readable(self._socket, timeout_s):
                    raise TimeoutError
                part = self._socket.recv(min(n_missing, 1 << 20))
            except TimeoutError:
                raise
            except (OSError, ValueError):  # ValueError: closed by another thread
                return False
            if not part:
                return False
            self._arrived += part
        return True


def _is_readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether something arrives in `timeout_s`, be it the end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000.0 * timeout_s))


def _encodable(value: Any) -> Any:
    """`value`, made of builtins, without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
