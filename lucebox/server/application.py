"""The ASGI application as a value: routes, middleware, handlers, lifespan."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import Message, Receive, Scope, Send

from lucebox import logs
from lucebox.config import EngineConfig, ServerConfig, ServerOptions, parse_server_args
from lucebox.engine.client import EngineClient, EngineState, EngineStatus, StatusHandler
from lucebox.errors import LuceboxError
from lucebox.progress import Bars
from lucebox.resolve import resolve
from lucebox.server import (
    chat,
    completions,
    console,
    embeddings,
    health,
    messages_api,
    metrics,
    models,
    openapi,
    page,
    props,
    responses_api,
    slots,
    tokens,
)
from lucebox.server.access import AccessLog
from lucebox.server.auth import ApiKey
from lucebox.server.body import BodyLimit
from lucebox.server.cors import cross_origin
from lucebox.server.errors import error_response, on_bug, on_lucebox_error
from lucebox.server.host import LocalHost, is_loopback
from lucebox.server.measured import Measured
from lucebox.server.mounting import Started, never_started
from lucebox.server.origin import OwnPages
from lucebox.server.paths import RootPath
from lucebox.server.service import Service
from lucebox.server.shutdown import ending_requests_on_signals
from lucebox.server.siblings import only_worker
from lucebox.server.startup_report import StartupReport
from lucebox.server.wrong_urls import on_http_error

logger = logging.getLogger(__name__)

ROUTES = (
    *chat.routes,
    *completions.routes,
    *responses_api.routes,
    *messages_api.routes,
    *embeddings.routes,
    *models.routes,
    *tokens.routes,
    *props.routes,
    *slots.routes,
    *metrics.routes,
    *health.routes,
    *openapi.routes,
    *page.routes,
)

_TOLD = re.compile(r"^lucebox\.errors\.\w+: (.*)", re.MULTILINE | re.DOTALL)  # the end of a traceback


def create_app(config: ServerConfig, service: Service | None = None) -> Starlette:
    """The application. Its lifespan loads the models in a process of their own, and frees them at the end.

    Requests that come before the models are loaded are answered 503. `service` replaces the one that
    `config` describes, e.g. to hear of its status. To mount it in another application, see `lifespan`.
    """
    service = service or create_service(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with only_worker(config), ending_requests_on_signals(service, config.drain_timeout_s):
            service.start()
            try:
                yield
            finally:
                await service.close()

    app = Starlette(
        routes=ROUTES,
        middleware=_middleware(config, service),
        exception_handlers={
            LuceboxError: on_lucebox_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a body would not go with it
    app.state.service = service
    return app


def _middleware(config: ServerConfig, service: Service) -> list[Middleware]:
    """Outermost first. A web page that reaches the server has no key, so a key is enough against it."""
    middleware = [Middleware(AccessLog)]
    if config.root_path:
        middleware.append(Middleware(RootPath, root_path=config.root_path))
    middleware.append(Middleware(Measured, tally=service.tally, routes=ROUTES))
    if not config.api_keys:
        if is_loopback(config.host):
            middleware.append(Middleware(LocalHost))
        middleware.append(Middleware(OwnPages, origins=config.cors_origins))
    if config.cors_origins:
        middleware.append(cross_origin(config.cors_origins))
    if config.api_keys:
        middleware.append(Middleware(ApiKey, keys=config.api_keys))
    middleware.append(Middleware(Started, service=service))
    max_bytes, timeout_s = config.max_body_bytes, config.client_timeout_s
    middleware.append(Middleware(BodyLimit, max_bytes=max_bytes, timeout_s=timeout_s))
    return middleware


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
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._app is None:
            await error_response(never_started())(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def prepare(self) -> Starlette:
        """The application itself, its models fetched but not loaded. Raises LuceboxError."""
        self._app = await asyncio.to_thread(self._create)
        return self._app

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lifespan events, with what is wrong told in one line."""

        async def send_briefly(message: Message) -> None:
            if told := _TOLD.search(message.get("message", "")):
                message = {**message, "message": told[1].strip()}
            await send(message)

        try:
            self._set_up_log()
            app = await self.prepare()
        except LuceboxError as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        with suppress(LuceboxError):  # told, too
            await app(scope, receive, send_briefly)

    @cached_property
    def _options(self) -> ServerOptions:
        """Raises ConfigError."""
        return parse_server_args([], self._environ)

    def _set_up_log(self) -> None:
        """As this server has it when it runs by itself, unless somebody has set it up. uvicorn joins in, but
        for its lines on requests, which ours say more than. Raises ConfigError."""
        options = self._options
        if not logs.is_configured():
            logs.configure(options.log_level, options.log_format, "server")
            logs.take_over(("uvicorn", "uvicorn.error"))
            logs.silence("uvicorn.access")

    def _create(self) -> Starlette:
        bars = Bars(console.say)
        config = resolve(self._options, on_progress=bars.on_download)
        report = StartupReport(config, console.say, bars, url=None)

        def on_status(status: EngineStatus) -> None:
            if status.state is EngineState.FAILED and not report.is_over:
                logger.error("%s", status.detail)
            report.on_status(status, service.info())

        service = create_service(config, on_status)
        return create_app(config, service)
