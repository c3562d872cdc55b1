"""One process of ours and the connection to it, as its parent holds them."""

from __future__ import annotations

import os
import signal
import site
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from lucebox import logs
from lucebox.engine.child_setup import EXIT_WORKER_LOST
from lucebox.wire import Channel

MAX_LAST_WORDS_BYTES = 1 << 16
RPC_CLIENT = "ggml-rpc"  # the source file that ggml names when it ends a process for a lost worker

Incoming = TypeVar("Incoming")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. `role` is what it was; `last_words` are ggml's, or its own."""

    role: str
    returncode: int
    last_words: str = ""

    @property
    def is_lost_worker(self) -> bool:
        """Whether it ended because a worker did, as far as its last words tell."""
        return self.returncode == EXIT_WORKER_LOST or RPC_CLIENT in self.last_words

    def __str__(self) -> str:
        if self.returncode == EXIT_WORKER_LOST and self.last_words:
            return self.last_words
        if self.is_lost_worker:
            return f"the {self.role} process lost a worker in the middle of a computation"
        how = f"the {self.role} process {self._how()}"
        return f"{how}: {self.last_words}" if self.last_words else how

    def _how(self) -> str:
        if self.returncode >= 0:
            return f"exited with status {self.returncode}"
        try:
            name = signal.Signals(-self.returncode).name
        except ValueError:
            name = str(-self.returncode)
        return f"was ended by {name}"


class ChildProcess(Generic[Incoming]):
    """Starts `python -m MODULE` when made. It must be ended by `reap`, from the thread that made it.

    On Linux the child is killed when the thread that started it ends, so that thread has to outlive it.
    `memory_fd` is a file that it shall inherit. Its side is in lucebox.engine.child_setup.
    """

    def __init__(
        self,
        module: str,
        role: str,
        config: msgspec.Struct,
        incoming: type[Incoming],
        log_level: str,
        *,
        memory_fd: int | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        abort_read, abort_write = os.pipe()
        command = _command(module, config, log_level, theirs.fileno(), abort_write)
        if memory_fd is not None:
            command.append(f"--memory-fd={memory_fd}")
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=[fd for fd in (theirs.fileno(), abort_write, memory_fd) if fd is not None],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is the user's; the child's own words go where its log goes
                env=_environment(),
            )
        except OSError:
            ours.close()
            os.close(abort_read)
            raise
        finally:
            theirs.close()
            os.close(abort_write)
        self._role = role
        self._abort_fd = abort_read
        self._channel = Channel(ours, incoming)

    @property
    def pid(self) -> int:
        return self._process.pid

    def receive(self, timeout_s: float | None = None) -> Incoming | None:
        """Waits for an event; None when the process has closed the connection, or died.

        Raises TimeoutError when nothing comes in `timeout_s`.
        """
        return self._channel.receive(timeout_s)

    def kill(self) -> None:
        """Ends the process by force, from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Ends the connection, and with it the process, from any thread."""
        self._channel.close()

    def wait(self) -> None:
        """Waits for the process to end by itself."""
        self._process.wait()

    def reap(self, timeout_s: float) -> Ending:
        """Waits for the process to end, by force after `timeout_s`; frees what it held, says how it ended."""
        self._channel.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        last_words = self._last_words()
        os.close(self._abort_fd)
        return Ending(self._role, self._process.returncode, last_words)

    def _last_words(self) -> str:
        os.set_blocking(self._abort_fd, False)
        try:
            return os.read(self._abort_fd, MAX_LAST_WORDS_BYTES).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""


def _command(module: str, config: msgspec.Struct, log_level: str, socket_fd: int, abort_fd: int) -> list[str]:
    return [
        sys.executable,
        "-P",  # a file of the current directory must not stand in for a module
        "-m",
        module,
        f"--config={msgspec.json.encode(config).decode()}",
        f"--socket-fd={socket_fd}",
        f"--abort-fd={abort_fd}",
        f"--parent={os.getpid()}",
        f"--log-level={log_level}",
        f"--log-format={logs.current_format()}",
    ]


def _environment() -> dict[str, str]:
    """Ours, and where this package lies if that is no place Python looks by itself."""
    environment = dict(os.environ, GGML_NO_BACKTRACE="1")
    root = str(Path(__file__).resolve().parents[2])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
