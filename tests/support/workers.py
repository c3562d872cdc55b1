"""Real workers on loopback, and a wire to them that can be cut."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """`lucebox worker` serving `device`, with one thread. `address` is what --workers takes.

    `port` names the first of its two ports, so that a worker can come back where one was.
    """

    def __init__(
        self,
        device: str = "CPU",
        *,
        port: int | None = None,
        n_threads: int = 1,
        host: str = "127.0.0.1",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port_pair() if port is None else port
        self.address = f"127.0.0.1:{self.port}"
        flags = [f"--listen={host}:{self.port}", f"--device={device}", f"--threads={n_threads}"]
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lucebox", "worker", *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "GOMP_SPINCOUNT": "0", **(environ or {})},
            text=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        try:
            self.ready_line = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As kill -9. Idempotent."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def words(self) -> str:
        """What it has said on stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        """As SIGSTOP: its connections stay open, and nobody answers."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], START_TIMEOUT_S)[0], "the worker says nothing"
        line = self.process.stdout.readline()
        assert re.match(r"lucebox worker at ", line), f"the worker ended:\n{self.words()}"
        return line.strip()


def _die_with_parent() -> None:
    """A test run that is killed leaves no worker behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class FreezingProxy:
    """Forwards both ports of the worker at `port` of this machine, until frozen: from then on, packets are as
    lost, and no connection ends. `address` is what --workers takes."""

    def __init__(self, port: int) -> None:
        self.port = free_port_pair()
        self.address = f"127.0.0.1:{self.port}"
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._sockets: list[socket.socket] = []
        for i in range(2):
            listener = socket.create_server(("127.0.0.1", self.port + i))
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=(listener, port + i), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def freeze(self) -> None:
        """Nothing is forwarded any more, in either direction."""
        self._open.clear()

    def thaw(self) -> None:
        """What was held back arrives."""
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._closed:
            try:
                here, _ = listener.accept()
            except OSError:
                continue
            self._open.wait()
            try:
                there = socket.create_connection(("127.0.0.1", port))
            except OSError:
                here.close()
                continue
            self._sockets += [here, there]
            for source, sink in ((here, there), (there, here)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                self._open.wait()
                sink.sendall(part)
        self._open.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def free_port_pair() -> int:
    """A port that is free, as is the one behind it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port
