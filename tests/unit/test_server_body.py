"""What a client may send, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message, Scope

from lucebox.server import body
from lucebox.server.application import create_app
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, http_scope, serving

HI = says(b"Hi")
MIB = 2**20


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "LINGER_S", 0.1)


def post(content: Any, **config: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with serving(HI, **config) as server:
            return await server.http.post(CHAT, content=content)

    return asyncio.run(run())


def assert_too_large(response: httpx.Response) -> None:
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    assert "1 MiB (--max-body)" in response.json()["error"]["message"]
    assert response.headers["connection"] == "close"


def test_a_body_of_a_known_length() -> None:
    assert_too_large(post(b" " * (MIB + 1), max_body_bytes=MIB))
    assert post(b" " * MIB, max_body_bytes=MIB).status_code == 400  # read, and no JSON


def test_a_body_without_a_length_that_never_ends() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 2**16
            await asyncio.sleep(0)

    assert_too_large(post(endless(), max_body_bytes=MIB))


class Client:
    """`receive` and `send` of a client who says `chunks`, and then nothing for ever."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.n_asked = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        self.n_asked += 1
        if not self._chunks:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self._chunks.pop(0), "more_body": True}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def call(client: Client, headers: list[tuple[bytes, bytes]], **config: Any) -> None:
    async with serving(HI, **config) as server:
        scope: Scope = http_scope(CHAT) | {"headers": headers}
        await server.app(scope, client.receive, client.send)


def test_who_waits_to_be_asked_is_refused_without() -> None:
    client = Client()
    headers = [(b"content-length", b"%d" % 10**30), (b"expect", b"100-continue")]
    asyncio.run(call(client, headers))
    assert client.sent[0]["status"] == 413
    assert client.n_asked == 0


def test_a_body_that_stops_coming() -> None:
    client = Client(b'{"mess')
    start_s = time.monotonic()
    asyncio.run(call(client, [(b"content-length", b"100")], client_timeout_s=0.2))
    assert client.sent[0]["status"] == 408
    assert b"request_timeout" in client.sent[1]["body"]
    assert time.monotonic() - start_s < 5.0


def test_a_large_body_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BYTES_PER_S", 1)
    client = Client(b"x" * 1000)

    async def run() -> None:
        task = asyncio.create_task(call(client, [], client_timeout_s=0.1))
        await asyncio.sleep(0.4)
        assert not client.sent
        task.cancel()

    asyncio.run(run())


def test_the_limit_is_the_configurations() -> None:
    from tests.support.serving import server_config

    kinds = {entry.cls: entry.kwargs for entry in create_app(server_config()).user_middleware}
    assert kinds[body.BodyLimit] == {"max_bytes": 16 * MIB, "timeout_s": 30.0}
