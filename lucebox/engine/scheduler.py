"""Who computes next, and how much. Policy only: it touches no tensors, no cache and no text."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lucebox.engine.sequence import NO_SLOT, EngineSequence

PREFILL_ROWS = 256
PREFILL_ROWS_BESIDE_DECODING = 64  # a long prompt may slow the others down, not stop them


@dataclass(frozen=True, slots=True)
class Feed:
    """`n_rows` of the missing tokens of `sequence` are computed in this step."""

    sequence: EngineSequence
    n_rows: int

    @property
    def draws(self) -> bool:
        """Whether the step reaches the last token, so that the next one can be drawn."""
        return self.n_rows == self.sequence.n_missing


@dataclass(frozen=True, slots=True)
class Turn:
    """One step: decoding sequences first. `n_draft_rows` is what each of them may add as a draft."""

    feeds: list[Feed]
    n_draft_rows: int


class Scheduler:
    """Runs at most `n_parallel` sequences, first come first served, in forwards of at most `n_batch` rows.

    Every decoding sequence takes part in every step. Prompts are computed in chunks beside them, in rotation.
    """

    def __init__(self, n_parallel: int, n_batch: int) -> None:
        assert 0 < n_parallel <= n_batch
        self.n_parallel = n_parallel
        self._n_batch = n_batch
        self._waiting: deque[EngineSequence] = deque()
        self._running: list[EngineSequence] = []
        self._free_slots = list(range(n_parallel))[::-1]

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    @property
    def running(self) -> list[EngineSequence]:
        return list(self._running)

    @property
    def waiting(self) -> list[EngineSequence]:
        return list(self._waiting)

    def add(self, sequence: EngineSequence) -> None:
        """Queues `sequence` behind all others."""
        self._waiting.append(sequence)

    def find(self, id: str) -> EngineSequence | None:
        """The sequence of request `id`, waiting or running."""
        return next((s for s in (*self._running, *self._waiting) if s.id == id), None)

    def remove(self, sequence: EngineSequence) -> None:
        """Forgets `sequence`, and frees its slot if it was running."""
        if sequence.slot == NO_SLOT:
            self._waiting.remove(sequence)
            return
        self._running.remove(sequence)
        self._free_slots.append(sequence.slot)
        sequence.slot = NO_SLOT

    def admit(self) -> list[EngineSequence]:
        """Gives free slots to waiting sequences, and returns those that start."""
        admitted = []
        while self._waiting and self._free_slots:
            sequence = self._waiting.popleft()
            sequence.start(self._free_slots.pop())
            self._running.append(sequence)
            admitted.append(sequence)
        return admitted

    def next_turn(self) -> Turn:
        """What the next step computes."""
        decoding = [s for s in self._running if s.n_missing == 1]
        prefilling = [s for s in self._running if s.n_missing > 1]
        feeds = [Feed(sequence, 1) for sequence in decoding]
        n_free = self._n_batch - len(feeds)
        n_prefill = min(n_free, PREFILL_ROWS_BESIDE_DECODING if decoding else PREFILL_ROWS)
        for sequence in prefilling:
            n_rows = min(sequence.n_missing, n_prefill)
            if n_rows == 0:
                break
            feeds.append(Feed(sequence, n_rows))
            n_prefill -= n_rows
            n_free -= n_rows
            self._running.remove(sequence)  # to the end: the next prompt has its turn in the next step
            self._running.append(sequence)
        return Turn(feeds, n_free // len(decoding) if decoding else 0)

    def check_integrity(self) -> None:
        """Asserts that every slot is free or has one owner."""
        slots = sorted([*self._free_slots, *(s.slot for s in self._running)])
        assert slots == list(range(self.n_parallel)), f"slots {slots}"
        assert all(s.slot == NO_SLOT for s in self._waiting)
