"""Clients of /v1/responses and /v1/messages that leave, and a stream that has nothing to say for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lucebox.server import answer
from tests.support.scripted_engine import endless, says
from tests.support.serving import HELLO, Connection, http_scope, serving

BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 1000},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_client_that_leaves_ends_its_generation(path: str, stream: bool) -> None:
    async def run() -> None:
        async with serving(endless) as server:
            connection = Connection({**BODIES[path], "stream": stream})
            answering = asyncio.create_task(server.app(http_scope(path), connection.receive, connection.send))
            await server.until_submitted()
            if stream:
                await connection.got_body.wait()
            connection.leave()
            await asyncio.wait_for(answering, 5)
            assert server.engine.wait_cancelled()

    asyncio.run(run())


@pytest.mark.parametrize("path", BODIES)
def test_a_quiet_stream_is_kept_open(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "HEARTBEAT_S", 0.01)

    async def run() -> None:
        async with serving(says(b"a", b"b")) as server:
            server.engine.gate.clear()
            connection = Connection({**BODIES[path], "stream": True})
            answering = asyncio.create_task(server.app(http_scope(path), connection.receive, connection.send))
            await asyncio.wait_for(connection.got_body.wait(), 5)
            await asyncio.sleep(0.05)
            server.engine.gate.set()
            await asyncio.wait_for(answering, 5)
            sent = b"".join(message.get("body", b"") for message in connection.sent)
            first, *events = sent.split(b"\n\n")
            assert first.startswith((b"event: response.created\n", b"event: message_start\n"))
            assert any(event.startswith(b": ") for event in events)

    asyncio.run(run())
