"""Guessing ahead as the engine's step sees it: there or not, and never a reason to fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from lucebox.core import Draft
from lucebox.drafters.base import Ahead, Drafter
from lucebox.engine.overlap import Overlap
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SafeOverlap:
    """What an Overlap does, or nothing without one. Once something goes wrong that it does not handle itself,
    nobody runs ahead any more, and all goes on as without it, but for the thread that drafts are made in.
    """

    def __init__(self, overlap: Overlap | None) -> None:
        self._overlap = overlap
        self._is_abandoned = overlap is None

    @property
    def is_there(self) -> bool:
        """Whether the draft model computes in a thread of its own."""
        return self._overlap is not None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody will guess on behind the drafts of this step."""
        return self._ask(lambda overlap: overlap.is_wanted, False)

    @property
    def teaches_verify(self) -> bool:
        """Whether the forward just done is one that others are to be measured by."""
        return self._ask(lambda overlap: overlap.teaches_verify, True)

    def settle(self) -> None:
        self._ask(lambda overlap: overlap.settle(), None)

    def begin(self, rounds: Sequence[Round], drafter_of: Callable[[Round], Drafter | None]) -> None:
        self._ask(lambda overlap: overlap.begin(rounds, [drafter_of(r) for r in rounds]), None)

    def end(self) -> None:
        self._ask(lambda overlap: overlap.end(), None)

    def wait(self) -> None:
        self._ask(lambda overlap: overlap.wait(), None)

    def take(self, sequence: EngineSequence, drafters: Sequence[Drafter]) -> Ahead | None:
        return self._ask(lambda overlap: overlap.take(sequence, drafters), None)

    def note_used(self, sequence: EngineSequence, ahead: Ahead | None, n_forwards: int) -> int:
        return self._ask(lambda overlap: overlap.note_used(sequence, ahead, n_forwards), 0)

    def release(self, slot: int) -> None:
        self._ask(lambda overlap: overlap.release(slot), None)

    def draft(self, propose: Callable[[], list[Draft]]) -> list[Draft]:
        """What `propose` returns, or raises, in the thread of the draft model."""
        assert self._overlap is not None
        return self._overlap.thread.call(propose)

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._ask(lambda overlap: overlap.close(), None)
        if self._is_abandoned and self._overlap is not None:
            self._overlap.thread.close()

    def _ask(self, ask: Callable[[Overlap], T], otherwise: T) -> T:
        if self._overlap is None or self._is_abandoned:
            return otherwise
        try:
            return ask(self._overlap)
        except Exception:
            logger.exception("guessing ahead failed; nobody does any more")
            self._is_abandoned = True
            self._overlap.abandon()
            return otherwise
