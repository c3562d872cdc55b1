"""ggml's RPC backend: devices served to one client at a time, and devices of such a server."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

from lucebox.errors import GgmlError
from lucebox.ggml import _api
from lucebox.ggml.devices import Device
from lucebox.ggml.library import load

VERSION = (
    _api.RPC_PROTO_MAJOR_VERSION,
    _api.RPC_PROTO_MINOR_VERSION,
    _api.RPC_PROTO_PATCH_VERSION,
)
# The first message of a connection and its answer, as ggml-rpc.cpp lays them out.
_HELLO = struct.Struct("<BQ24s")
_HELLO_COMMAND = 14
_HELLO_ANSWER = struct.Struct("<QBBBB24s")


def start_server(endpoint: str, devices: Sequence[Device], n_threads: int) -> None:
    """Serves `devices` at an IPv4 `endpoint`, as `127.0.0.1:50052`, with `n_threads` for those that are CPUs.

    Never returns unless it cannot listen: then stderr says so. Releases the GIL.
    """
    pointers = (ctypes.c_void_p * len(devices))(*(device.pointer for device in devices))
    load().ggml_backend_rpc_start_server(endpoint.encode(), None, n_threads, len(devices), pointers)


def add_server(endpoint: str) -> tuple[int, ...]:
    """The ggml_backend_dev_t of each device that the server at the IPv4 `endpoint` has.

    They are not in ggml's registry, where it would ask them for memory and end this process with the worker.
    Waits as long as the server serves others: `server_version` tells before. Raises GgmlError.
    """
    library = load()
    registry = library.ggml_backend_rpc_add_server(endpoint.encode())
    if not registry:
        raise GgmlError(f"ggml cannot use the RPC server at {endpoint}", remedy="see the log above")
    n_devices = library.ggml_backend_reg_dev_count(registry)
    return tuple(library.ggml_backend_reg_dev_get(registry, i) for i in range(n_devices))


def server_version(host: str, port: int, timeout_s: float) -> tuple[int, ...]:
    """The RPC version of a server that is free to serve us, after a greeting that leaves it free again.

    Raises TimeoutError when it serves somebody else, OSError when there is none, ValueError when it is
    no such server.
    """
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(_HELLO.pack(_HELLO_COMMAND, 24, b""))
        answer = b""
        while len(answer) < _HELLO_ANSWER.size:
            part = connection.recv(_HELLO_ANSWER.size - len(answer))
            if not part:
                raise ValueError(f"answered {len(answer)} bytes to a greeting")
            answer += part
    n_bytes, *version, _, _ = _HELLO_ANSWER.unpack(answer)
    if n_bytes != _HELLO_ANSWER.size - 8:
        raise ValueError(f"answered a greeting with {n_bytes} bytes")
    return tuple(version)
