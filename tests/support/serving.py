"""The application around a scripted engine, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.types import Message, Scope

from lucebox.config import EngineConfig, ModelConfig, ServerConfig
from lucebox.engine.client import EngineState, StatusHandler
from lucebox.server.application import create_app
from lucebox.server.service import Service
from tests.support.scripted_engine import N_CTX, ByteText, Script, ScriptedEngine, says

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


def server_config(**changes: Any) -> ServerConfig:
    target = ModelConfig(path="/secret/folder/tiny-q4.gguf", device="auto", n_threads=1, kv_type="f16")
    engine = EngineConfig(
        target=target,
        draft=None,
        drafters=(),
        acceptance="auto",
        draft_length="fixed:n=4",
        n_ctx=N_CTX,
        n_parallel=1,
    )
    values: dict[str, Any] = {
        "engine": engine,
        "host": "127.0.0.1",
        "port": 8080,
        "model_alias": "tiny",
        "log_level": "info",
    }
    return ServerConfig(**values | changes)


@dataclass(slots=True)
class Server:
    """What a test may look at and pull."""

    app: Starlette
    engine: ScriptedEngine
    text: ByteText
    service: Service
    http: httpx.AsyncClient

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.http.post(path, json=body, **options)

    async def until_submitted(self, n: int = 1) -> None:
        """Waits for the engine's `n`-th request."""
        while len(self.engine.submits) < n:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    script: Script, *, ready: bool = True, n_ctx: int = N_CTX, text: ByteText | None = None, **config: Any
) -> AsyncIterator[Server]:
    engines: list[ScriptedEngine] = []

    def make_engine(_: EngineConfig, on_status: StatusHandler) -> ScriptedEngine:
        engines.append(ScriptedEngine(script, n_ctx=n_ctx, ready=ready, on_status=on_status))
        return engines[0]

    text = text or ByteText()
    settings = server_config(**config)
    service = Service(settings, make_engine, lambda _: text)
    app = create_app(settings, service)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        service.start()
        while ready and service.status().state is not EngineState.READY:
            await asyncio.sleep(0)
        try:
            yield Server(app, engines[0], text, service, http)
        finally:
            await service.close()


def ask(
    script: Script, path: str, body: Any = None, *, content: bytes | None = None, **config: Any
) -> httpx.Response:
    """One POST to a server of its own; `content` instead of `body` for what is no JSON."""

    async def run() -> httpx.Response:
        async with serving(script, **config) as server:
            if content is not None:
                return await server.http.post(path, content=content)
            return await server.post(path, body)

    return asyncio.run(run())


def fetch(
    path: str, method: str = "GET", headers: dict[str, str] | None = None, **config: Any
) -> httpx.Response:
    """One request without a body to a server of its own."""

    async def run() -> httpx.Response:
        async with serving(says(b"Hi"), **config) as server:
            return await server.http.request(method, path, headers=headers)

    return asyncio.run(run())


def answered(path: str, body: Any, **config: Any) -> tuple[Server, httpx.Response]:
    """The server after it answered `body`, for what it was asked to do."""

    async def run() -> tuple[Server, httpx.Response]:
        async with serving(says(b"ok"), n_ctx=1000, **config) as server:
            response = await server.post(path, body)
            assert response.status_code == 200, response.text
            return server, response

    return asyncio.run(run())


def events(response: httpx.Response) -> list[Any]:
    """The payloads of a streamed answer, its [DONE] checked and left out."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = [b for b in response.text.split("\n\n") if b and not b.startswith(":")]
    assert all(block.startswith("data: ") for block in blocks)
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


def http_scope(path: str, method: str = "POST") -> Scope:
    """A request for an application called directly."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }


class Connection:
    """A client that can leave: `receive` and `send` for an application called directly."""

    def __init__(self, body: Any) -> None:
        self.sent: list[Message] = []
        self.got_body = asyncio.Event()
        self._left = asyncio.Event()
        self._request: Message | None = {"type": "http.request", "body": json.dumps(body).encode()}

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> Message:
        if (request := self._request) is not None:
            self._request = None
            return request
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.got_body.set()
