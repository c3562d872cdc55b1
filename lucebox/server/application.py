"""The ASGI application as a value: routes, middleware, handlers, lifespan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from lucebox.config import EngineConfig, ServerConfig, parse_server_args
from lucebox.engine.client import EngineClient, StatusHandler
from lucebox.errors import LuceboxError
from lucebox.resolve import resolve
from lucebox.server import chat, completions, health, models
from lucebox.server.access import AccessLog
from lucebox.server.auth import ApiKey
from lucebox.server.errors import on_bug, on_http_error, on_lucebox_error
from lucebox.server.host import LocalHost, is_loopback
from lucebox.server.service import Service
from lucebox.server.shutdown import ending_requests_on_signals

logger = logging.getLogger(__name__)


def create_app(config: ServerConfig, service: Service | None = None) -> Starlette:
    """The application. Its lifespan loads the models in a process of their own, and frees them at the end.

    Requests that come before the models are loaded are answered 503. `service` replaces the one that
    `config` describes, e.g. to hear of its status.
    """
    service = service or create_service(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with ending_requests_on_signals(service):
            service.start()
            try:
                yield
            finally:
                await service.close()

    middleware = [Middleware(AccessLog)]
    if config.api_key is not None:
        middleware.append(Middleware(ApiKey, key=config.api_key))
    elif is_loopback(config.host):  # a web page that reaches the server has no key, so a key is enough
        middleware.append(Middleware(LocalHost))
    app = Starlette(
        routes=[*chat.routes, *completions.routes, *models.routes, *health.routes],
        middleware=middleware,
        exception_handlers={
            LuceboxError: on_lucebox_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def create_service(config: ServerConfig, on_status: StatusHandler | None = None) -> Service:
    """The service of `config`: its engine in a child process, nothing loaded yet."""
    from lucebox.engine.process_client import ProcessClient
    from lucebox.server.text_model import load_text_model

    def make_engine(engine: EngineConfig, on_engine_status: StatusHandler) -> EngineClient:
        return ProcessClient(engine, on_engine_status, log_level=config.log_level)

    return Service(config, make_engine, load_text_model, on_status)


class EnvironmentApp:
    """The application that LUCEBOX_* variables describe; read, and models fetched, in its lifespan."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._app: Starlette | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and not await self._prepare(receive, send):
            return
        assert self._app is not None, "this application needs its server to run lifespan events"
        await self._app(scope, receive, send)

    async def _prepare(self, receive: Receive, send: Send) -> bool:
        try:
            self._app = await asyncio.to_thread(self._create)
        except LuceboxError as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return False
        return True

    def _create(self) -> Starlette:
        return create_app(resolve(parse_server_args([], self._environ), on_progress=_log_progress))


def _log_progress(model: str, n_bytes: int, n_bytes_total: int) -> None:
    logger.debug("fetching %s: %d of %d bytes", model, n_bytes, n_bytes_total)
