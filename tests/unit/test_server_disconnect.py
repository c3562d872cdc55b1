"""Clients that leave, clients that read slowly, and a server that is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
from starlette.types import Message

from lucebox.errors import EngineError
from lucebox.server import answer
from lucebox.server.shutdown import ending_requests_on_signals
from tests.support.scripted_engine import endless, says
from tests.support.serving import CHAT, HELLO, TEXT, Connection, http_scope, serving


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_client_that_leaves_ends_its_generation(path: str, stream: bool) -> None:
    async def run() -> None:
        async with serving(endless) as server:
            start = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
            connection = Connection({**start, "n": 2, "stream": stream})
            answering = asyncio.create_task(server.app(http_scope(path), connection.receive, connection.send))
            await server.until_submitted(2)
            if stream:
                await connection.got_body.wait()
            connection.leave()
            await asyncio.wait_for(answering, 5)
            assert server.engine.wait_cancelled(2)
            ids = {submit.id for submit in server.engine.submits}
            assert set(server.engine.cancelled) == ids

    asyncio.run(run())


def test_a_client_that_leaves_before_the_first_token() -> None:
    async def run() -> None:
        async with serving(endless) as server:
            server.engine.gate.clear()
            connection = Connection({"messages": HELLO, "stream": True})
            answering = asyncio.create_task(server.app(http_scope(CHAT), connection.receive, connection.send))
            await server.until_submitted()
            connection.leave()
            await asyncio.wait_for(answering, 5)
            assert server.engine.wait_cancelled()
            assert connection.sent == []

    asyncio.run(run())


def test_a_client_that_leaves_while_sending() -> None:
    async def run() -> None:
        async with serving(endless) as server:
            sent: list[Message] = []

            async def receive() -> Message:
                return {"type": "http.disconnect"}

            async def send(message: Message) -> None:
                sent.append(message)

            await asyncio.wait_for(server.app(http_scope(CHAT), receive, send), 5)
            assert server.engine.submits == []

    asyncio.run(run())


def test_finished_requests_are_not_cancelled() -> None:
    async def run() -> None:
        async with serving(says(b"Hi")) as server:
            for stream in (False, True):
                await server.post(CHAT, {"messages": HELLO, "stream": stream})
            assert server.engine.cancelled == []

    asyncio.run(run())


def test_a_slow_client_gets_fewer_and_longer_chunks() -> None:
    n = 500

    async def run() -> None:
        async with serving(says(*[b"x"] * n)) as server:
            connection = Connection({"messages": HELLO, "stream": True})
            started = asyncio.Event()
            resume = asyncio.Event()

            async def send(message: Message) -> None:
                await connection.send(message)
                started.set()
                await resume.wait()

            answering = asyncio.create_task(server.app(http_scope(CHAT), connection.receive, send))
            await started.wait()
            # The engine goes on while the client reads nothing.
            while server.engine.status().n_in_flight:
                await asyncio.sleep(0.001)
            resume.set()
            await asyncio.wait_for(answering, 5)
            body = b"".join(message.get("body", b"") for message in connection.sent)
            assert body.count(b"x") >= n
            assert len(connection.sent) < 10

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_shutting_down_ends_requests_with_an_error(stream: bool) -> None:
    async def run() -> None:
        async with serving(endless) as server:
            asking = asyncio.create_task(server.post(CHAT, {"messages": HELLO, "stream": stream}))
            await server.until_submitted()
            await asyncio.sleep(0.01)
            server.service.abort(EngineError("the server is shutting down"))
            response = await asyncio.wait_for(asking, 5)
            assert response.status_code == (200 if stream else 503)
            assert "shutting down" in response.text

    asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_requests_after_a_while_and_is_passed_on(number: signal.Signals) -> None:
    passed_on: list[int] = []

    async def run() -> None:
        before = signal.getsignal(number)
        signal.signal(number, lambda n, _: passed_on.append(n))
        own = signal.getsignal(number)
        try:
            async with serving(endless) as server:
                with ending_requests_on_signals(server.service, drain_s=0.05):
                    asking = asyncio.create_task(server.post(CHAT, {"messages": HELLO, "stream": True}))
                    await server.until_submitted()
                    start_s = time.monotonic()
                    os.kill(os.getpid(), number)
                    response = await asyncio.wait_for(asking, 5)
                    assert time.monotonic() - start_s >= 0.05
                    assert "shutting down" in response.text
                assert signal.getsignal(number) is own
        finally:
            signal.signal(number, before)

    asyncio.run(run())
    assert passed_on == [number]


def test_a_stream_that_waits_long_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "HEARTBEAT_S", 0.01)

    async def run() -> None:
        async with serving(says(b"Hi")) as server:
            server.engine.gate.clear()
            connection = Connection({"messages": HELLO, "stream": True})
            answering = asyncio.create_task(server.app(http_scope(CHAT), connection.receive, connection.send))
            while not any(message.get("body", b"").startswith(b":") for message in connection.sent):
                await asyncio.sleep(0.001)
            server.engine.gate.set()
            await asyncio.wait_for(answering, 5)
            body = b"".join(message.get("body", b"") for message in connection.sent)
            assert body.startswith(b'data: {"id"')
            assert body.endswith(b"data: [DONE]\n\n")

    asyncio.run(run())
