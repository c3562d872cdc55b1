"""A worker's control port: says what ggml's RPC cannot, to any number of clients, while ggml computes.

Nothing that arrives here ends the process or takes more than a bounded part of its memory and threads.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence

from lucebox.errors import EngineError
from lucebox.ggml import _api, rpc
from lucebox.ggml.devices import Device, list_devices
from lucebox.ggml.library import load
from lucebox.terminal import printable
from lucebox.wire import Channel
from lucebox.worker.claims import Claimant, Claims
from lucebox.worker.operation import rebuild
from lucebox.worker.protocol import (
    IDLE_S,
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Answer,
    Claim,
    Claimed,
    DeviceFacts,
    Devices,
    Hello,
    ListDevices,
    Ping,
    Pong,
    Question,
    Refused,
    Supported,
    Supports,
    Welcome,
)

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
RPC_VERSION = ".".join(map(str, rpc.VERSION))


class ControlServer:
    """Answers at `listener` for `devices`, which ggml serves at `rpc_port`. `serve` runs until `close`."""

    def __init__(self, listener: socket.socket, devices: Sequence[Device], rpc_port: int) -> None:
        self._listener = listener
        self._devices = devices
        self._claims = Claims(rpc_port)
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._closed = False

    def serve(self) -> None:
        """Accepts connections, and ends those that have been silent for too long."""
        self._listener.settimeout(1.0)
        while not self._closed:
            try:
                connection, peer = self._listener.accept()
            except TimeoutError:
                self._end_silent()
                continue
            except OSError as error:  # out of descriptors, or a client that went while it was accepted
                if not self._closed:
                    logger.warning("cannot accept a connection: %s", error)
                    time.sleep(0.1)
                continue
            self._end_silent()
            self._start(connection, str(peer[0]))

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `serve`
        self._listener.close()
        with self._lock:
            for session in self._sessions:
                session.close()

    def _start(self, connection: socket.socket, host: str) -> None:
        connection.settimeout(IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = Session(connection, host, self._devices, self._claims)
        with self._lock:
            is_full = len(self._sessions) >= MAX_CONNECTIONS
            if not is_full:
                self._sessions.add(session)
        if is_full:
            logger.warning("%s is one connection too many", host)
            session.close()
            return
        threading.Thread(target=self._run, args=(session,), name=f"control {host}", daemon=True).start()

    def _run(self, session: Session) -> None:
        try:
            session.run()
        finally:
            with self._lock:
                self._sessions.discard(session)

    def _end_silent(self) -> None:
        """Also those that send a byte now and then."""
        oldest_s = time.monotonic() - IDLE_S
        with self._lock:
            for session in self._sessions:
                if session.heard_s < oldest_s:
                    session.close()


class Session:
    """One connection: greets, answers, and ends its claim when it ends. It was last heard at `heard_s`."""

    def __init__(
        self, connection: socket.socket, host: str, devices: Sequence[Device], claims: Claims
    ) -> None:
        self.heard_s = time.monotonic()
        self._channel: Channel[Question] = Channel(connection, Question, MAX_MESSAGE_BYTES)  # type: ignore[arg-type]
        self._host = host
        self._name = host
        self._devices = devices
        self._claims = claims
        self._claimant: Claimant | None = None

    def run(self) -> None:
        """Until the client hangs up, falls silent, or says what cannot be understood."""
        try:
            if self._greet():
                while (question := self._hear()) is not None:
                    self._channel.send(self._answer(question))
        except (EngineError, OSError) as error:
            logger.info("hung up on %s: %s", self._name, error or type(error).__name__)
        except Exception:
            logger.exception("hung up on %s", self._name)
        finally:
            self._release()
            self.close()

    def close(self) -> None:
        self._channel.close()

    def _hear(self) -> Question | None:
        question = self._channel.receive()
        self.heard_s = time.monotonic()
        return question

    def _greet(self) -> bool:
        """Whether both sides are of the same versions. Each says its own, and the client says what to do."""
        hello = self._hear()
        if not isinstance(hello, Hello):
            return False
        self._name = f"{printable(hello.client)[:80]} ({self._host})"
        self._channel.send(Welcome(PROTOCOL, _api.VERSION, RPC_VERSION))
        return (hello.protocol, hello.ggml, hello.rpc) == (PROTOCOL, _api.VERSION, RPC_VERSION)

    def _answer(self, question: Question) -> Answer:
        match question:
            case Ping():
                return Pong()
            case Claim():
                return self._claim()
            case ListDevices():
                return Devices(facts_of(self._devices))
            case Supports():
                return self._supports(question)
            case Hello():
                return Refused("a second greeting")

    def _claim(self) -> Claimed:
        if self._claimant is None:
            claimant, is_ours = self._claims.claim(self._name)
            if not is_ours:
                return Claimed(claimant.name, time.monotonic() - claimant.since_s)
            self._claimant = claimant
            logger.info("%s uses the devices", self._name)
        return Claimed()

    def _release(self) -> None:
        if self._claimant is not None:
            self._claims.release(self._claimant)
            logger.info("%s is gone", self._name)

    def _supports(self, question: Supports) -> Supported | Refused:
        if not 0 <= question.device < len(self._devices):
            return Refused(f"there is no device {question.device}")
        try:
            with rebuild(load(), question.operation) as operation:
                return Supported(self._devices[question.device].supports(operation))
        except ValueError as error:
            return Refused(str(error))


def facts_of(devices: Sequence[Device]) -> tuple[DeviceFacts, ...]:
    """What there is to say about `devices`, with their memory as it is now."""
    now = {device.pointer: device for device in list_devices()}
    return tuple(
        DeviceFacts(device.name, device.description, device.kind, device.free_bytes, device.total_bytes)
        for device in (now[device.pointer] for device in devices)
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at an IPv4 address. Raises OSError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
        undo.pop_all()
    return listener
