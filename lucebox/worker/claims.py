"""Who may use the worker's devices: one client at a time, since ggml's RPC server lets others wait."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lucebox.worker import connections

_LEAVE_TIMEOUT_S = 2.0  # for the connections of the client before


@dataclass(frozen=True, slots=True)
class Claimant:
    """A client, named for others to read, and the time.monotonic() of its claim."""

    name: str
    since_s: float


class Claims:
    """The one claim on the devices that ggml serves at `rpc_port`. For any thread."""

    def __init__(self, rpc_port: int) -> None:
        self._rpc_port = rpc_port
        self._lock = threading.Lock()
        self._holder: Claimant | None = None

    def claim(self, name: str) -> tuple[Claimant, bool]:
        """The claimant, and whether that is the one who asked. May wait for the one before to be gone."""
        with self._lock:
            if self._holder is not None:
                return self._holder, False
            squatter = self._squatter()
            if squatter is not None:
                return Claimant(squatter, time.monotonic()), False
            self._holder = Claimant(name, time.monotonic())
            return self._holder, True

    def release(self, claimant: Claimant) -> None:
        """Ends the claim, and with it what the claimant's connections to ggml hold. Idempotent."""
        with self._lock:
            if self._holder is claimant:
                connections.drop(self._rpc_port)
                self._holder = None

    def _squatter(self) -> str | None:
        """Who uses ggml's port without a claim, as other programs may."""
        deadline_s = time.monotonic() + _LEAVE_TIMEOUT_S
        while found := connections.peers(self._rpc_port):
            if time.monotonic() > deadline_s:
                return f"a program at {found[0]} that speaks ggml's RPC only"
            time.sleep(0.02)
        return None
