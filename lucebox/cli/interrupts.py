"""Ctrl-C in a conversation: it interrupts what waits for it, once, and nothing else."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interrupts:
    """Within the outer block, SIGINT raises KeyboardInterrupt in an `allowed` block alone, and once in each.

    So no line is half-written, and no prompt half-shown, whenever the signal comes. For the main thread.
    """

    def __init__(self) -> None:
        self._is_allowed = False
        self._previous: object = None

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]

    def allowed(self) -> _Allowed:
        """A block that SIGINT may interrupt. The `try` around it sees every KeyboardInterrupt of it."""
        return _Allowed(self)

    def _on_signal(self, signal_number: int, frame: FrameType | None) -> None:
        if self._is_allowed:
            self._is_allowed = False
            raise KeyboardInterrupt


class _Allowed:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        self._interrupts._is_allowed = True

    def __exit__(self, *_: object) -> None:
        self._interrupts._is_allowed = False
