"""Who computes next, and how much. Policy only: it touches no tensors, no cache and no text."""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass

from lucebox.engine.prefix_cache import N_BLOCK
from lucebox.engine.prompt_scores import MAX_ROWS
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
    """Runs at most `n_parallel` sequences in forwards of at most `n_batch` rows.

    A free slot goes to the group that has the fewest, and among those to who came first: a client that asks
    for many answers at once does not let others wait for all of them.
    Every decoding sequence takes part in every step. Prompts are computed in chunks beside them: half the
    rows are for those that miss the fewest tokens, the other half for those that began first, so that nobody
    waits for a long prompt to ask about a short one, and no long one waits for ever. Prompts that are alike
    end one after another rather than all at the end. Where it `shares_prefixes`, what several have in common
    is computed for one of them while the others wait.
    """

    def __init__(self, n_parallel: int, n_batch: int, *, shares_prefixes: bool = False) -> None:
        assert 0 < n_parallel <= n_batch
        self.n_parallel = n_parallel
        self._n_batch = n_batch
        self._shares_prefixes = shares_prefixes
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
        """Queues `sequence` behind all that came before it."""
        insort(self._waiting, sequence, key=lambda waiting: waiting.clock.arrived_s)

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
            sequence = self._next_in_turn()
            self._waiting.remove(sequence)
            sequence.start(self._free_slots.pop())
            self._running.append(sequence)
            admitted.append(sequence)
        return admitted

    def _next_in_turn(self) -> EngineSequence:
        n_slots = Counter(sequence.group for sequence in self._running)
        for sequence in self._waiting:
            if not n_slots[sequence.group]:  # nearly always the first: thousands may be waiting
                return sequence
        return min(self._waiting, key=lambda sequence: n_slots[sequence.group])  # the first of the least

    def next_turn(self) -> Turn:
        """What the next step computes."""
        decoding = [s for s in self._running if s.n_missing == 1 or s.is_decoding]
        prefilling = [s for s in self._running if s.n_missing > 1 and not s.is_decoding]
        feeds = [Feed(s, min(s.n_missing, self._n_batch // len(decoding))) for s in decoding]
        n_free = self._n_batch - sum(feed.n_rows for feed in feeds)
        n_prefill = min(n_free, PREFILL_ROWS_BESIDE_DECODING if decoding else PREFILL_ROWS)
        chunks = self._chunks(prefilling, n_prefill)
        n_free -= sum(chunk.n_rows for chunk in chunks)
        feeds += chunks
        return Turn(feeds, n_free // len(decoding) if decoding else 0)

    def _chunks(self, prefilling: list[EngineSequence], n_rows: int) -> list[Feed]:
        """Parts of prompts, of `n_rows` in all at most, MAX_ROWS of them of prompts that want all logits."""
        given: dict[EngineSequence, int] = {}
        n_scored = MAX_ROWS
        shortest_first = sorted(prefilling, key=lambda sequence: sequence.n_missing)
        for order, n_kept in ((shortest_first, n_rows - n_rows // 2), (prefilling, 0)):
            for sequence in order:
                if self._shares_prefixes and any(_computes_for(one, given[one], sequence) for one in given):
                    continue
                n = min(sequence.n_missing - given.get(sequence, 0), n_rows - n_kept)
                if sequence.scores is not None:
                    n = min(n, n_scored)
                    n_scored -= n
                if n > 0:
                    given[sequence] = given.get(sequence, 0) + n
                    n_rows -= n
        return [Feed(sequence, n) for sequence, n in given.items()]

    def check_integrity(self) -> None:
        """Asserts that every slot is free or has one owner."""
        slots = sorted([*self._free_slots, *(s.slot for s in self._running)])
        assert slots == list(range(self.n_parallel)), f"slots {slots}"
        assert all(s.slot == NO_SLOT for s in self._waiting)


def _computes_for(one: EngineSequence, n_rows: int, other: EngineSequence) -> bool:
    """Whether `one` ends, with `n_rows` more, the block that `other` needs next and will find in the prefix
    cache."""
    n_known = (other.n_cached // N_BLOCK + 1) * N_BLOCK
    if one is other or one.pooler is not None or not other.may_reuse or n_known >= len(other.tokens):
        return False
    ends_it = one.n_cached < n_known <= one.n_cached + n_rows
    return ends_it and one.tokens[:n_known] == other.tokens[:n_known]
