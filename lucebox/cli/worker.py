"""`lucebox worker`: this machine's devices for an engine on another."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from lucebox import terminal
from lucebox.errors import ConfigError, LuceboxError, WorkerError
from lucebox.flags import Integer

if TYPE_CHECKING:
    from lucebox.ggml.devices import Device
    from lucebox.worker.address import WorkerAddress

HELP = "serve this machine's devices to an engine on another (`lucebox serve --workers`)"
DEFAULT_LISTEN = "127.0.0.1:50052"
_START_TIMEOUT_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"address to listen at, and at the port behind it, too; anybody who reaches them can use this "
        f"worker, and crash it, so leave it at loopback and tunnel [default: {DEFAULT_LISTEN}]",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE[,DEVICE…]",
        default="auto",
        help="names or numbers of `lucebox devices` [default: auto, the fastest]",
    )
    parser.add_argument("--threads", metavar="N", help="CPU threads that compute [default: physical cores]")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.cores import physical_cores
    from lucebox.ggml.devices import AUTO, find_devices
    from lucebox.worker.address import WorkerAddress
    from lucebox.worker.server import ControlServer, listen

    logging.getLogger("lucebox.worker").setLevel(logging.INFO)
    address = WorkerAddress.parse(arguments.listen)
    host = address.resolve()
    n_threads = _n_threads(arguments.threads) or physical_cores()
    devices = find_devices(arguments.device, n_threads=n_threads)
    if arguments.device.strip().lower() == AUTO:
        devices = devices[:1]
    _end_on_signals()
    try:
        listen(host, address.port).close()  # ggml would say nothing about a port in use
        listener = listen(host, address.control_port)
    except OSError as error:
        raise WorkerError(
            f"Cannot listen at {address} and the port behind it: {error.strerror}",
            remedy="choose another HOST:PORT with --listen",
        ) from error
    _warn_of_strangers(host)
    say_ready = _keep_stdout()
    server = threading.Thread(
        target=_serve_rpc, args=(f"{host}:{address.port}", devices, n_threads), name="rpc", daemon=True
    )
    server.start()
    _wait_until_served(host, address.port, server)
    control = ControlServer(listener, devices, address.port)
    threading.Thread(target=control.serve, name="control", daemon=True).start()
    say_ready(_ready_line(address, devices))
    server.join()
    raise WorkerError("ggml's RPC server ended", remedy="see the lines above")


def _n_threads(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(Integer(1, 1024).parse(text))
    except ValueError as error:
        raise ConfigError(f"--threads {error}, not {text!r}") from None


def _end_on_signals() -> None:
    """At once: ggml's thread can be neither asked nor waited for."""

    def end(number: int, frame: object) -> NoReturn:
        os._exit(0 if number == signal.SIGTERM else 128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _warn_of_strangers(host: str) -> None:
    if not ipaddress.ip_address(host).is_loopback:
        terminal.say(
            f"lucebox: WARNING: other machines can reach {host}, and ggml's RPC asks nobody for a password: "
            "they can crash this process, and perhaps take it over. Use it in networks where you trust "
            "everybody, or listen at 127.0.0.1 and tunnel both ports (ssh -L)."
        )


def _keep_stdout() -> Callable[[str], None]:
    """Prints to what is stdout now. It is closed to ggml from here on, which chats about each client."""
    ours = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)

    def say(line: str) -> None:
        print(line, file=ours, flush=True)

    return say


def _serve_rpc(endpoint: str, devices: Sequence[Device], n_threads: int) -> None:
    from lucebox.ggml.rpc import start_server

    try:
        start_server(endpoint, devices, n_threads)
    except LuceboxError as error:
        terminal.show_error(error)


def _wait_until_served(host: str, port: int, server: threading.Thread) -> None:
    """Until ggml has made its backends and listens."""
    from lucebox.ggml.rpc import server_version

    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while server.is_alive() and time.monotonic() < deadline_s:
        try:
            server_version("127.0.0.1" if host == "0.0.0.0" else host, port, 1.0)
            return
        except (OSError, ValueError):
            time.sleep(0.02)
    raise WorkerError(f"ggml's RPC server does not start at {host}:{port}", remedy="see the lines above")


def _ready_line(address: WorkerAddress, devices: Sequence[Device]) -> str:
    shown = ", ".join(
        f"{device.name} ({device.description}, {device.free_bytes / 2**20:,.0f} MiB free)"
        for device in devices
    )
    return f"lucebox worker at {address} (control port {address.control_port}) serves {shown}"
