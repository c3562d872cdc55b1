"""A server from start to end: resolve, listen, load, serve, stop."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from types import FrameType

import uvicorn

from lucebox.config import ServerConfig, ServerOptions
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.errors import ConfigError, LuceboxError
from lucebox.progress import Bars
from lucebox.resolve import resolve
from lucebox.server import console
from lucebox.server.application import create_app, create_service
from lucebox.server.host import is_loopback

logger = logging.getLogger(__name__)

# A last resort: requests end by themselves before this, see shutdown.py.
MAX_DRAIN_S = 6


def serve(options: ServerOptions) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code.

    Raises the LuceboxError that kept it from starting: a model that cannot be had or loaded, a port in use.
    """
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    # Its own words on starting and stopping would repeat ours.
    logging.getLogger("uvicorn.error").setLevel("DEBUG" if options.log_level == "debug" else "WARNING")
    listen(options.host, options.port).close()  # a port in use shows before gigabytes are fetched
    with Bars() as bars:
        config = resolve(options, on_progress=bars.on_download)
    with listen(config.host, config.port) as listener:
        warn_if_open(config)
        console.say_plan(config)
        return Run(config, listener)()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound before anything is loaded. Raises ConfigError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # what follows is the address again
        raise ConfigError(
            f"cannot listen at {host}:{port}: {reason}", remedy="choose another --host or --port"
        ) from None


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Run:
    """One run of the server: tells how loading goes, and stops when it fails."""

    def __init__(self, config: ServerConfig, listener: socket.socket) -> None:
        self._listener = listener
        self._bars = Bars()
        self._lock = threading.Lock()
        self._was_ready = False
        self._said_memory = False
        self._failure: LuceboxError | None = None
        self._service = create_service(config, self._on_status)
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(config, self._service),
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=MAX_DRAIN_S,
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
        with self._lock:
            if self._was_ready or self._server.should_exit:
                return
            match status.state:
                case EngineState.READY:
                    self._was_ready = True
                    self._bars.close()
                    if (info := self._service.info()) is not None:
                        console.say_ready(info, url_of(self._listener))
                case EngineState.FAILED:
                    self._bars.close()
                    self._failure = self._service.error()
                    self._server.should_exit = True
                case _:
                    if status.plan is not None and not self._said_memory:
                        self._said_memory = True
                        console.say_memory(status.plan)
                    self._bars.on_status(status)


def warn_if_open(config: ServerConfig) -> None:
    if not is_loopback(config.host) and config.api_key is None:
        logger.warning(
            "LISTENING AT %s WITHOUT AN API KEY: whoever reaches this address can use the model "
            "(remedy: set LUCEBOX_API_KEY, or leave --host at 127.0.0.1)",
            config.host,
        )
