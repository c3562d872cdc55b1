"""Notices that a worker is gone or stands still, which ggml's RPC would wait for without end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lucebox.errors import WorkerError
from lucebox.worker.control import ControlConnection
from lucebox.worker.protocol import PING_EVERY_S, STALL_S, Ping, Pong

logger = logging.getLogger(__name__)

LostHandler = Callable[[str], None]


class Watchdog:
    """Pings over `connection`, which it owns, and calls `on_lost(reason)` once from its own thread.

    A worker answers while its devices compute, so that a long computation is no stall.
    """

    def __init__(self, connection: ControlConnection, on_lost: LostHandler) -> None:
        self._connection = connection
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watchdog {connection.address}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection without calling `on_lost`; idempotent."""
        self._stopped.set()
        self._connection.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def disarm(self) -> None:
        """`on_lost` is not called any more, whatever happens."""
        self._on_lost = _ignore

    def _run(self) -> None:
        reason = self._watch()
        if self._stopped.is_set():
            return
        logger.warning("%s", reason)
        self._connection.close()
        self._on_lost(reason)

    def _watch(self) -> str:
        try:
            while not self._connection.is_closed_within(PING_EVERY_S):
                self._connection.ask(Ping(), Pong, timeout_s=STALL_S)
        except WorkerError as error:
            return error.message
        return f"The worker {self._connection.address} closed the connection"


def _ignore(reason: str) -> None:
    pass
