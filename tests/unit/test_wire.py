"""Messages over a socket, and what is made of garbage."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from lucebox.engine.messages import Cancel, Message, Submit
from lucebox.errors import EngineError
from lucebox.sampling.params import SamplingParams
from lucebox.wire import HEADER, MAX_MESSAGE_BYTES, Channel, MalformedMessageError


@pytest.fixture
def ends() -> Iterator[tuple[Channel[Message], socket.socket]]:
    ours, theirs = socket.socketpair()
    channel: Channel[Message] = Channel(ours, Message)  # type: ignore[arg-type]
    yield channel, theirs
    channel.close()
    theirs.close()


def test_messages_of_any_size_arrive_in_order(ends: tuple[Channel[Message], socket.socket]) -> None:
    channel, theirs = ends
    other: Channel[Message] = Channel(theirs, Message)  # type: ignore[arg-type]
    large = Submit(id="a", prompt=list(range(300_000)), params=SamplingParams(), seed=1)
    sender = threading.Thread(target=lambda: [other.send(m) for m in (Cancel("x"), large, Cancel("y"))])
    sender.start()
    assert [channel.receive() for _ in range(3)] == [Cancel("x"), large, Cancel("y")]
    sender.join()


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"null", b"\x81\xa4type\xa4nope", b"\x82\xa4type\xa6cancel\xa2id\x01"]
)
def test_a_malformed_message_is_skipped(ends: tuple[Channel[Message], socket.socket], body: bytes) -> None:
    channel, theirs = ends
    theirs.sendall(HEADER.pack(len(body)) + body)
    Channel(theirs, Message).send(Cancel("x"))  # type: ignore[arg-type]
    with pytest.raises(MalformedMessageError):
        channel.receive()
    assert channel.receive() == Cancel("x")


def test_text_that_is_no_unicode_arrives_without_what_cannot_be_sent(
    ends: tuple[Channel[Message], socket.socket],
) -> None:
    channel, theirs = ends
    params = SamplingParams(stop=("a\udcff",), logit_bias={7: 1.0})
    Channel(theirs, Message).send(Submit(id="\udcffx", prompt=[1], params=params, seed=1))  # type: ignore[arg-type]
    expected = SamplingParams(stop=("a?",), logit_bias={7: 1.0})
    assert channel.receive() == Submit(id="?x", prompt=[1], params=expected, seed=1)


def test_an_absurd_length_is_refused_before_memory_is_taken(
    ends: tuple[Channel[Message], socket.socket],
) -> None:
    channel, theirs = ends
    theirs.sendall(HEADER.pack(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(EngineError, match="claims"):
        channel.receive()


@pytest.mark.parametrize("sent", [b"", b"\0\0", HEADER.pack(10) + b"abc"])
def test_the_end_of_the_stream_is_none(ends: tuple[Channel[Message], socket.socket], sent: bytes) -> None:
    channel, theirs = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    assert channel.receive() is None


def test_close_wakes_both_ends_and_frees_the_descriptor() -> None:
    ours, theirs = socket.socketpair()
    a: Channel[Message] = Channel(ours, Message)  # type: ignore[arg-type]
    b: Channel[Message] = Channel(theirs, Message)  # type: ignore[arg-type]
    n_open = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    received: list[object] = []
    readers = [threading.Thread(target=lambda c=c: received.append(c.receive())) for c in (a, b)]
    for reader in readers:
        reader.start()
    a.close()
    for reader in readers:
        reader.join(5)
    assert received == [None, None]
    with pytest.raises(OSError, match=r"."):
        a.send(Cancel("x"))
    a.close()
    b.close()
    if n_open is not None:
        assert len(os.listdir("/proc/self/fd")) == n_open - 2


def test_a_channel_may_allow_less() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        small: Channel[Message] = Channel(ours, Message, max_bytes=100)  # type: ignore[arg-type]
        peer.sendall(HEADER.pack(101))
        with pytest.raises(EngineError, match="more than 100"):
            small.receive()


def test_a_timeout_of_the_socket_is_not_its_end() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.settimeout(0.01)
        channel: Channel[Message] = Channel(ours, Message)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            channel.receive()
        peer.close()
        assert channel.receive() is None


def test_a_message_that_comes_in_pieces_survives_timeouts(
    ends: tuple[Channel[Message], socket.socket],
) -> None:
    channel, theirs = ends
    body = msgspec.msgpack.encode(Cancel("x" * 100))
    data = HEADER.pack(len(body)) + body
    for piece in (data[:2], data[2:50], data[50:-1]):
        theirs.sendall(piece)
        with pytest.raises(TimeoutError):
            channel.receive(0.01)
    theirs.sendall(data[-1:] + data)
    assert channel.receive(0.01) == Cancel("x" * 100)
    assert channel.receive(0.01) == Cancel("x" * 100)
    theirs.shutdown(socket.SHUT_WR)
    assert channel.receive(0.01) is None
