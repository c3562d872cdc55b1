"""A server from start to end: resolve, listen, load, serve, stop."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from functools import partial
from types import FrameType
from typing import NoReturn

import uvicorn

from lucebox import logs
from lucebox.config import ServerConfig, ServerOptions
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.errors import ConfigError, LuceboxError
from lucebox.hub import would_fetch
from lucebox.progress import Bars
from lucebox.resolve import resolve
from lucebox.server import allocator, console, http_protocol
from lucebox.server.application import create_app, create_service
from lucebox.server.host import is_every_address, is_loopback
from lucebox.server.startup_report import StartupReport

logger = logging.getLogger(__name__)

# Last resorts: requests end by themselves before these, see shutdown.py.
LATE_DRAIN_S = 3
SECOND_SIGNAL_S = 2.0


def serve(options: ServerOptions) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code.

    Raises the LuceboxError that kept it from starting: a model that cannot be had or loaded, a port in use.
    Where the log is JSON, that goes to it, and the code is 2 for a wrong setting and 1 for anything else.
    """
    logs.configure(options.log_level, options.log_format, "server")
    # Its own words on starting and stopping would repeat ours.
    logging.getLogger("uvicorn.error").setLevel("DEBUG" if options.log_level == "debug" else "WARNING")
    try:
        return _serve(options)
    except LuceboxError as error:
        if options.log_format != "json":
            raise
        logger.error("%s", error)
        return 2 if isinstance(error, ConfigError) else 1


def _serve(options: ServerOptions) -> int:
    allocator.keep_little()
    check_certificate(options.ssl_certfile, options.ssl_keyfile)
    models = (options.engine.target_model, options.engine.draft_model or "")
    if any(would_fetch(model) for model in models):  # else what is wrong with flags and models shows first
        listen(options.host, options.port).close()  # a port in use shows before gigabytes are fetched
    with _bars(options.log_format) as bars:
        config = resolve(options, on_progress=bars.on_download)
    with listen(config.host, config.port) as listener:
        warn_if_open(config)
        return Run(config, listener)()


def _bars(log_format: logs.LogFormat) -> Bars:
    """Bars for people who watch, and lines of the log for everybody else."""
    return Bars(None if log_format == "text" and sys.stderr.isatty() else console.say)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound before anything is loaded. Raises ConfigError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # what follows is the address again
        remedy = "choose another --host or --port"
        if error.errno == errno.EADDRINUSE:
            remedy = "perhaps another Lucebox runs there; choose another port with --port"
        raise ConfigError(f"cannot listen at {host}:{port}: {reason}", remedy=remedy) from None


def check_certificate(certfile: str | None, keyfile: str | None) -> None:
    """Raises ConfigError for files that HTTPS cannot be served with."""
    if certfile is None:
        if keyfile is not None:
            raise ConfigError("--ssl-keyfile needs the certificate, too", remedy="give --ssl-certfile")
        return

    def no_password() -> NoReturn:
        raise ConfigError(
            f"the key in {keyfile or certfile} has a password, and nobody is there to type it",
            remedy="take it off with `openssl pkey`",
        )

    for path in filter(None, (certfile, keyfile)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(
            f"no certificate and key for HTTPS in {certfile} and {keyfile or 'the same file'}: {reason}",
            remedy="both must be PEM, and belong together",
        ) from None


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """A URL that opens on this machine: the loopback's where every address is listened on."""
    host, port = listener.getsockname()[:2]
    if is_every_address(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Run:
    """One run of the server: tells how loading goes, and stops when it fails."""

    def __init__(self, config: ServerConfig, listener: socket.socket) -> None:
        self._listener = listener
        self._bars = _bars(config.log_format)
        scheme = "http" if config.ssl_certfile is None else "https"
        url = partial(url_of, listener, scheme)
        self._report = StartupReport(config, console.say, self._bars, url)
        self._failure: LuceboxError | None = None
        self._service = create_service(config, self._on_status)
        self._server = _Server(
            uvicorn.Config(
                create_app(config, self._service),
                http=http_protocol.protocol(config.client_timeout_s),
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                ws="none",
                ssl_certfile=config.ssl_certfile,
                ssl_keyfile=config.ssl_keyfile,
                timeout_graceful_shutdown=round(config.drain_timeout_s) + LATE_DRAIN_S,
            )
        )

    def __call__(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        with self._bars:
            self._server.run(sockets=[self._listener])
        if self._failure is not None:
            raise self._failure
        console.say("stopped")
        return 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ends a server that is just being set up. Later ones go to uvicorn, which raises the one that
        stopped it again: by then everything is freed, and all is well."""
        if not self._server.should_exit:
            raise KeyboardInterrupt

    def _on_status(self, status: EngineStatus) -> None:
        if self._server.should_exit:
            return
        self._report.on_status(status, self._service.info())
        if status.state is EngineState.FAILED:  # for good: a service manager shall know
            self._failure = self._service.error()
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """Ends at once on a second signal: what does not within SECOND_SIGNAL_S is left to the system, and the
    engine's process with it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            timer = threading.Timer(SECOND_SIGNAL_S, os._exit, (128 + sig,))
            timer.daemon = True
            timer.start()
            return
        super().handle_exit(sig, frame)


def warn_if_open(config: ServerConfig) -> None:
    if not is_loopback(config.host) and not config.api_keys:
        logger.warning(
            "LISTENING AT %s WITHOUT AN API KEY: whoever reaches this address can use the model "
            "(remedy: set LUCEBOX_API_KEY, or leave --host at 127.0.0.1)",
            config.host,
        )
