"""Where a worker listens."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Self

from lucebox.errors import ConfigError, WorkerError

DEFAULT_PORT = 50052
_EXAMPLE = f"write it as 192.168.0.7:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """`port` is ggml's RPC, the port behind it the control port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """An address from `HOST:PORT`, or `HOST` with the default port. Raises ConfigError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if ":" in host:
            raise ConfigError(f"{text!r} is no worker's address: ggml's RPC has no IPv6", remedy=_EXAMPLE)
        if not host or any(c.isspace() or not c.isprintable() or c == "/" for c in host):
            raise ConfigError(f"{text!r} is no worker's address", remedy=_EXAMPLE)
        if not port.isascii() or not port.isdecimal() or not 1 <= int(port[:6]) <= 65534:
            raise ConfigError(f"{text!r} has no port from 1 to 65534", remedy=_EXAMPLE)
        return cls(host, int(port))

    @property
    def control_port(self) -> int:
        return self.port + 1

    def resolve(self) -> str:
        """The host's IPv4 address in figures, the only kind that ggml takes. Raises WorkerError."""
        try:
            found = socket.getaddrinfo(self.host, self.port, socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise WorkerError(
                f"The host of the worker {self} has no IPv4 address: {error}", remedy="check its name"
            ) from error
        return str(found[0][4][0])

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
