"""What is said at a worker's control port: a client asks, the worker answers each question.

The first question is `Hello`. Later versions may add fields to `Hello` and `Welcome`, but rename none, so
that both sides can say which versions met.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from lucebox.worker.operation import Operation

PROTOCOL = 1
MAX_MESSAGE_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 4.0
PING_EVERY_S = 1.0
STALL_S = 4.0  # without an answer, a worker is lost
IDLE_S = 10.0  # without a message, a client is

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """`ggml` is its version, `rpc` that of its RPC protocol. `client` is shown to those who find it busy."""

    protocol: int
    ggml: Name
    rpc: Name
    client: Name


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The worker's own versions. It hangs up if they do not match."""

    protocol: int
    ggml: Name
    rpc: Name


class Claim(msgspec.Struct, frozen=True, tag=True):
    """Asks for the devices, for as long as this connection lasts."""


class Claimed(msgspec.Struct, frozen=True, tag=True):
    """The devices are the asker's, unless some `other` has had them for so many seconds."""

    other: str | None = None
    for_s: float = 0.0


class ListDevices(msgspec.Struct, frozen=True, tag=True):
    pass


class DeviceFacts(msgspec.Struct, frozen=True):
    """A device as the worker sees it; `kind` is one of DeviceKind's values."""

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int


class Devices(msgspec.Struct, frozen=True, tag=True):
    """In the order of ggml's RPC."""

    devices: tuple[DeviceFacts, ...]


class Supports(msgspec.Struct, frozen=True, tag=True):
    """Asks whether device number `device` can compute `operation`."""

    device: int
    operation: Operation


class Supported(msgspec.Struct, frozen=True, tag=True):
    yes: bool


class Ping(msgspec.Struct, frozen=True, tag=True):
    pass


class Pong(msgspec.Struct, frozen=True, tag=True):
    pass


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The question made no sense."""

    problem: str


Question: TypeAlias = Hello | Claim | ListDevices | Supports | Ping
Answer: TypeAlias = Welcome | Claimed | Devices | Supported | Pong | Refused
