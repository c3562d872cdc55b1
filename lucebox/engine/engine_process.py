"""The engine's process, as ProcessClient holds it."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from lucebox.config import EngineConfig
from lucebox.engine.child_process import ChildProcess, Ending
from lucebox.engine.messages import Event, Message


class EngineProcess(ChildProcess[Event]):
    """A ChildProcess that takes messages without blocking who sends them."""

    def __init__(self, config: EngineConfig, log_level: str) -> None:
        super().__init__("lucebox.engine.child", "engine", config, Event, log_level)  # type: ignore[arg-type]
        self._outgoing: SimpleQueue[Message | None] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="lucebox-engine-writer", daemon=True)
        self._writer.start()

    def send(self, message: Message) -> None:
        """Queues `message`; it is lost if the process dies first."""
        self._outgoing.put(message)

    def reap(self, timeout_s: float) -> Ending:
        self._channel.close()
        self._outgoing.put(None)
        self._writer.join()
        return super().reap(timeout_s)

    def _write(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._channel.send(message)
            except OSError:
                return
