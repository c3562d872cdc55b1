"""The control port of a worker against a real socket: who is let in, and what is made of garbage."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from lucebox.errors import ConfigError, WorkerError
from lucebox.ggml import _api, rpc
from lucebox.wire import HEADER, Channel
from lucebox.worker import connections, control, server
from lucebox.worker.address import WorkerAddress
from lucebox.worker.claims import Claims
from lucebox.worker.control import ControlConnection
from lucebox.worker.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Claim,
    Claimed,
    Hello,
    ListDevices,
    Ping,
    Pong,
    Welcome,
)
from lucebox.worker.server import MAX_CONNECTIONS, RPC_VERSION, ControlServer, listen
from lucebox.worker.watchdog import Watchdog

HELLO = Hello(PROTOCOL, _api.VERSION, RPC_VERSION, "somebody")


@dataclass
class Control:
    """A control port without devices, beside a port on which ggml would listen."""

    address: WorkerAddress
    rpc: socket.socket
    server: ControlServer
    thread: threading.Thread = field(repr=False)

    def dial(self) -> socket.socket:
        return socket.create_connection((self.address.host, self.address.control_port), 5.0)


@pytest.fixture
def control_port() -> Iterator[Control]:
    rpc_listener, listener = _listen_twice()
    port = rpc_listener.getsockname()[1]
    control_server = ControlServer(listener, (), port)
    thread = threading.Thread(target=control_server.serve)
    thread.start()
    yield Control(WorkerAddress("127.0.0.1", port), rpc_listener, control_server, thread)
    control_server.close()
    thread.join(5.0)
    rpc_listener.close()
    assert not thread.is_alive()


def _listen_twice() -> tuple[socket.socket, socket.socket]:
    while True:
        first = listen("127.0.0.1", 0)
        try:
            return first, listen("127.0.0.1", first.getsockname()[1] + 1)
        except (OSError, OverflowError):
            first.close()


def _is_hung_up(connection: socket.socket, timeout_s: float = 5.0) -> bool:
    connection.settimeout(timeout_s)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("10.0.0.7:50052", "10.0.0.7", 50052), (" box:1 ", "box", 1), ("box", "box", 50052)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    address = WorkerAddress.parse(text)
    assert (address.host, address.port, address.control_port) == (host, port, port + 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "box:",
        ":1",
        "box:0",
        "box:65535",
        "box:-1",
        "box:x",
        "a b:1",
        "[::1]:1",
        "box:1²",
        "http://x:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no worker's address|no port"):
        WorkerAddress.parse(text)


def test_a_host_without_an_address() -> None:
    with pytest.raises(WorkerError, match="has no IPv4 address"):
        WorkerAddress("no-such-host.invalid", 1).resolve()


def test_both_sides_greet_and_talk(control_port: Control) -> None:
    connection = ControlConnection(control_port.address)
    assert connection.ask(Ping(), Pong) == Pong()
    assert connection.ask(Claim(), Claimed) == Claimed()
    assert connection.ask(Claim(), Claimed) == Claimed()
    connection.close()
    connection.close()


def test_one_client_at_a_time(control_port: Control) -> None:
    first, second = ControlConnection(control_port.address), ControlConnection(control_port.address)
    assert first.ask(Claim(), Claimed).other is None
    answer = second.ask(Claim(), Claimed)
    assert answer.other is not None
    assert "(127.0.0.1)" in answer.other
    assert 0 <= answer.for_s < 5
    first.close()
    _wait_until(lambda: second.ask(Claim(), Claimed).other is None)
    second.close()


def test_a_claim_ends_the_connections_to_ggml(control_port: Control) -> None:
    first = ControlConnection(control_port.address)
    assert first.ask(Claim(), Claimed).other is None
    to_ggml = socket.create_connection((control_port.address.host, control_port.address.port))
    accepted, _ = control_port.rpc.accept()
    assert connections.peers(control_port.address.port) == ["127.0.0.1"]
    first.close()
    assert _is_hung_up(accepted)
    assert _is_hung_up(to_ggml)
    accepted.close()
    to_ggml.close()
    _wait_until(lambda: not connections.peers(control_port.address.port))


def test_who_uses_ggml_alone_keeps_others_out(control_port: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.worker.claims._LEAVE_TIMEOUT_S", 0.1)
    connection = ControlConnection(control_port.address)
    with socket.create_connection((control_port.address.host, control_port.address.port)):
        accepted, _ = control_port.rpc.accept()
        answer = connection.ask(Claim(), Claimed)
        assert answer.other == "a program at 127.0.0.1 that speaks ggml's RPC only"
        accepted.close()
    assert connection.ask(Claim(), Claimed).other is None
    connection.close()


def test_a_claim_waits_for_ggml_to_let_go_of_the_client_before(control_port: Control) -> None:
    claims = Claims(control_port.address.port)
    with socket.create_connection((control_port.address.host, control_port.address.port)):
        accepted, _ = control_port.rpc.accept()
        threading.Timer(0.1, accepted.close).start()
        claimant, is_ours = claims.claim("me")
    assert is_ours
    claims.release(claimant)
    claims.release(claimant)


def test_the_worker_says_its_versions_and_hangs_up_on_others(control_port: Control) -> None:
    for hello in (
        msgspec.structs.replace(HELLO, protocol=PROTOCOL + 1),
        msgspec.structs.replace(HELLO, ggml="0.1"),
        msgspec.structs.replace(HELLO, rpc="9.9.9"),
    ):
        with control_port.dial() as raw:
            channel: Channel[Welcome] = Channel(raw, Welcome)
            channel.send(hello)
            welcome = channel.receive()
            assert welcome is not None
            assert (welcome.protocol, welcome.ggml, welcome.rpc) == (PROTOCOL, _api.VERSION, RPC_VERSION)
            assert channel.receive() is None


def test_we_name_both_versions(control_port: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROTOCOL", 7)
    with pytest.raises(WorkerError) as caught:
        ControlConnection(control_port.address)
    theirs = f"protocol 7, ggml {_api.VERSION} and RPC {RPC_VERSION}"
    assert f"it has {theirs}, we have {theirs.replace('7', str(PROTOCOL), 1)}" in caught.value.message
    assert "the same version" in caught.value.remedy


GARBAGE: dict[str, bytes] = {
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "a huge length": struct.pack(">I", 0xFFFFFFFF),
    "a length just too large": HEADER.pack(MAX_MESSAGE_BYTES + 1),
    "no message": HEADER.pack(0),
    "noise": HEADER.pack(64) + bytes(range(64)),
    "another message first": HEADER.pack(6) + msgspec.msgpack.encode(["Ping"])[:6],
    "a question before the greeting": b"",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_hung_up_on(control_port: Control, name: str) -> None:
    body = msgspec.msgpack.encode(ListDevices())
    garbage = GARBAGE[name] or HEADER.pack(len(body)) + body
    with control_port.dial() as raw:
        raw.sendall(garbage)
        assert _is_hung_up(raw)
    with control_port.dial() as greeted:
        channel: Channel[Welcome] = Channel(greeted, Welcome)
        channel.send(HELLO)
        assert channel.receive() is not None
        greeted.sendall(GARBAGE[name] or HEADER.pack(3) + b"\xc1\xc1\xc1")
        assert _is_hung_up(greeted)
    ControlConnection(control_port.address).close()


def test_the_silent_and_the_slow_are_hung_up_on(
    control_port: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.3)
    with control_port.dial() as silent, control_port.dial() as slow, control_port.dial() as half_closed:
        half_closed.shutdown(socket.SHUT_WR)
        assert _is_hung_up(half_closed)
        slow.sendall(HEADER.pack(1000))
        _wait_until(lambda: not _trickles(slow))
        assert _is_hung_up(silent)


def test_one_connection_too_many(control_port: Control) -> None:
    kept = [control_port.dial() for _ in range(MAX_CONNECTIONS)]
    try:
        _wait_until(lambda: len(control_port.server._sessions) == MAX_CONNECTIONS)
        with control_port.dial() as one_more:
            assert _is_hung_up(one_more)
        assert not any(_is_hung_up(each, 0.01) for each in kept)
    finally:
        for each in kept:
            each.close()
    _wait_until(lambda: not control_port.server._sessions)
    ControlConnection(control_port.address).close()


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = WorkerAddress("127.0.0.1", probe.getsockname()[1] - 1)
        with pytest.raises(WorkerError, match=r"There is no worker at .*refused") as caught:
            ControlConnection(address)
    assert "lucebox worker" in caught.value.remedy


def test_somebody_else_there(control_port: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CONNECT_TIMEOUT_S", 0.2)
    silent = WorkerAddress("127.0.0.1", control_port.address.port - 1)  # its control port is ggml's
    with pytest.raises(WorkerError, match="does not answer as a worker"):
        ControlConnection(silent)


def test_the_watchdog_hears_of_the_end_at_once(control_port: Control) -> None:
    lost, reasons = threading.Event(), []

    def on_lost(reason: str) -> None:
        reasons.append(reason)
        lost.set()

    watchdog = Watchdog(ControlConnection(control_port.address), on_lost)
    control_port.server.close()
    assert lost.wait(1.0)
    watchdog.stop()
    assert reasons == [f"The worker {control_port.address} closed the connection"]


def test_the_watchdog_notices_silence(control_port: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.worker.watchdog.PING_EVERY_S", 0.05)
    monkeypatch.setattr("lucebox.worker.watchdog.STALL_S", 0.3)
    hears = threading.Event()
    hears.set()
    answer = server.Session._answer

    def slowly(session: server.Session, question: Ping) -> Pong:
        hears.wait(5.0)
        return answer(session, question)  # type: ignore[return-value]

    monkeypatch.setattr(server.Session, "_answer", slowly)
    lost, reasons = threading.Event(), []

    def on_lost(reason: str) -> None:
        reasons.append(reason)
        lost.set()

    watchdog = Watchdog(ControlConnection(control_port.address), on_lost)
    assert not lost.wait(0.5)  # ten pings, all answered
    hears.clear()
    assert lost.wait(2.0)
    hears.set()
    watchdog.stop()
    assert len(reasons) == 1
    assert "has not answered for" in reasons[0]


def test_a_stopped_watchdog_says_nothing(control_port: Control) -> None:
    reasons: list[str] = []
    watchdog = Watchdog(ControlConnection(control_port.address), reasons.append)
    watchdog.stop()
    watchdog.stop()
    assert reasons == []


def test_a_server_that_does_not_speak_rpc(control_port: Control) -> None:
    def answer() -> None:
        accepted, _ = control_port.rpc.accept()
        with accepted:
            accepted.recv(100)

    threading.Thread(target=answer).start()
    with pytest.raises(ValueError, match="0 bytes"):
        rpc.server_version("127.0.0.1", control_port.address.port, 2.0)
    with pytest.raises(TimeoutError):
        rpc.server_version("127.0.0.1", control_port.address.port, 0.1)


def _trickles(connection: socket.socket) -> bool:
    """Whether one more byte can be sent."""
    try:
        connection.sendall(b"a")
    except OSError:
        return False
    return True


def _wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
