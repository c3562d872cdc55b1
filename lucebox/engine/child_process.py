"""One engine process and the connection to it, as its parent holds them."""

from __future__ import annotations

import os
import signal
import site
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import msgspec

from lucebox.config import EngineConfig
from lucebox.engine.messages import Event, Message
from lucebox.wire import Channel

MAX_LAST_WORDS_BYTES = 1 << 16


class ChildProcess:
    """Starts a process when made. It must be ended by `reap`, from the thread that made it.

    On Linux the child is killed when the thread that started it ends, so that thread has to outlive it.
    """

    def __init__(self, config: EngineConfig, log_level: str) -> None:
        ours, theirs = socket.socketpair()
        abort_read, abort_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                _command(config, log_level, theirs.fileno(), abort_write),
                pass_fds=(theirs.fileno(), abort_write),
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is the user's; the engine's own words go where its log goes
                env=_environment(),
            )
        except OSError:
            ours.close()
            os.close(abort_read)
            raise
        finally:
            theirs.close()
            os.close(abort_write)
        self._abort_fd = abort_read
        self._channel: Channel[Event] = Channel(ours, Event)  # type: ignore[arg-type]
        self._outgoing: SimpleQueue[Message | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="lucebox-engine-writer", daemon=True)
        self._writer.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        """Queues `message`; it is lost if the process dies first."""
        self._outgoing.put(message)

    def receive(self) -> Event | None:
        """Waits for an event; None when the process has closed the connection, or died."""
        return self._channel.receive()

    def kill(self) -> None:
        """Ends the process by force, from any thread."""
        self._process.kill()

    def reap(self, timeout_s: float) -> str:
        """Waits for the process to end, by force after `timeout_s`; frees what it held, says how it ended."""
        self._channel.close()
        self._outgoing.put(None)
        self._writer.join()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        last_words = self._last_words()
        os.close(self._abort_fd)
        ending = _describe(self._process.returncode)
        return f"{ending}: {last_words}" if last_words else ending

    def _write(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._channel.send(message)
            except OSError:
                return

    def _last_words(self) -> str:
        os.set_blocking(self._abort_fd, False)
        try:
            return os.read(self._abort_fd, MAX_LAST_WORDS_BYTES).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""


def _command(config: EngineConfig, log_level: str, socket_fd: int, abort_fd: int) -> list[str]:
    return [
        sys.executable,
        "-P",  # a file of the current directory must not stand in for a module
        "-m",
        "lucebox.engine.child",
        f"--config={msgspec.json.encode(config).decode()}",
        f"--socket-fd={socket_fd}",
        f"--abort-fd={abort_fd}",
        f"--parent={os.getpid()}",
        f"--log-level={log_level}",
    ]


def _environment() -> dict[str, str]:
    """Ours, and where this package lies if that is no place Python looks by itself."""
    environment = dict(os.environ, GGML_NO_BACKTRACE="1")
    root = str(Path(__file__).resolve().parents[2])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _describe(returncode: int) -> str:
    if returncode >= 0:
        return f"the engine process exited with status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = str(-returncode)
    return f"the engine process was ended by {name}"
