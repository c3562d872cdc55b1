"""The connections of this process that ggml's RPC server has accepted, which ggml itself never lets go.

It waits for the next command of a client without a timeout: one whose machine has vanished would keep the
server for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator


def peers(port: int) -> list[str]:
    """The hosts that are connected to our `port`, as address texts."""
    with contextlib.ExitStack() as stack:
        return [peer for _, peer in _connections(port, stack)]


def drop(port: int) -> int:
    """Shuts the connections to our `port` down, and returns how many they were: ggml's server then goes on
    to the next client."""
    with contextlib.ExitStack() as stack:
        found = list(_connections(port, stack))
        for connection, _ in found:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(found)


def _connections(port: int, stack: contextlib.ExitStack) -> Iterator[tuple[socket.socket, str]]:
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            connection = stack.enter_context(_duplicate(int(name)))
            if connection.family == socket.AF_INET and connection.getsockname()[1] == port:
                yield connection, connection.getpeername()[0]


def _duplicate(fd: int) -> socket.socket:
    """Raises OSError for what is no socket."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
