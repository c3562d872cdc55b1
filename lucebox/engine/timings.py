"""What requests cost, and what guessing brought them: sums that add up over rounds, requests and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec


class DrafterTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What one drafter guessed: rounds with at least one token of its own, and tokens."""

    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0

    def __add__(self, other: DrafterTotals) -> DrafterTotals:
        return DrafterTotals(
            n_rounds=self.n_rounds + other.n_rounds,
            n_drafted=self.n_drafted + other.n_drafted,
            n_accepted=self.n_accepted + other.n_accepted,
        )


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """What one request cost, or many. Times are wall-clock milliseconds.

    `prompt_n` tokens of the prompt were computed, in `prompt_ms`; `cache_n` others were known from other
    requests, as llama.cpp's server has it.
    `n_rounds` counts plain and drafted rounds, `verify_ms` the target's forwards behind the prompt's. The
    draft model ran ahead of `n_overlapped` of them; `n_foreseen` times it had guessed what came true, which
    spared a wait of `hidden_ms`. Of `predicted_n` tokens `n_forced` took no round, as a grammar allowed no
    other.
    `drafted_per_position[i]` drafts had a token i+1 deep, and in `accepted_per_position[i]` of them such a
    token was accepted; of a tree, the accepted path counts. `drafters` are the sums of each, by name.
    """

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    n_forced: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0
    n_rounds: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    n_overlapped: int = 0
    n_foreseen: int = 0
    hidden_ms: float = 0.0
    accepted_per_position: list[int] = []
    drafted_per_position: list[int] = []
    drafters: dict[str, DrafterTotals] = {}

    def __add__(self, other: Timings) -> Timings:
        return Timings(
            cache_n=self.cache_n + other.cache_n,
            prompt_n=self.prompt_n + other.prompt_n,
            prompt_ms=self.prompt_ms + other.prompt_ms,
            predicted_n=self.predicted_n + other.predicted_n,
            n_forced=self.n_forced + other.n_forced,
            predicted_ms=self.predicted_ms + other.predicted_ms,
            draft_n=self.draft_n + other.draft_n,
            draft_n_accepted=self.draft_n_accepted + other.draft_n_accepted,
            n_rounds=self.n_rounds + other.n_rounds,
            draft_ms=self.draft_ms + other.draft_ms,
            verify_ms=self.verify_ms + other.verify_ms,
            n_overlapped=self.n_overlapped + other.n_overlapped,
            n_foreseen=self.n_foreseen + other.n_foreseen,
            hidden_ms=self.hidden_ms + other.hidden_ms,
            accepted_per_position=_added(self.accepted_per_position, other.accepted_per_position),
            drafted_per_position=_added(self.drafted_per_position, other.drafted_per_position),
            drafters=_merged(self.drafters, other.drafters),
        )

    @property
    def prompt_per_second(self) -> float:
        """Computed prompt tokens per second; 0 before anything was measured."""
        return 1000.0 * self.prompt_n / self.prompt_ms if self.prompt_ms > 0 else 0.0

    @property
    def predicted_per_second(self) -> float:
        """Generated tokens per second; 0 before anything was measured."""
        return 1000.0 * self.predicted_n / self.predicted_ms if self.predicted_ms > 0 else 0.0

    @property
    def n_drafted_rounds(self) -> int:
        """Rounds that had a draft."""
        return self.drafted_per_position[0] if self.drafted_per_position else 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 without drafts."""
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per drafted round: the accepted ones and the one that follows them. 1 without drafts."""
        return 1.0 + self.draft_n_accepted / self.n_drafted_rounds if self.n_drafted_rounds else 1.0

    @property
    def per_position_acceptance(self) -> list[float]:
        """Per depth of the draft, the share of all drafted rounds in which that token was accepted: those
        in which a token before it was rejected, or the draft was shorter, count against it."""
        return [n / self.n_drafted_rounds for n in self.accepted_per_position]

    @property
    def draft_share(self) -> float:
        """The part of all time that went to drafting; 0 before anything was measured."""
        total_ms = self.prompt_ms + self.predicted_ms
        return self.draft_ms / total_ms if total_ms > 0 else 0.0


class DraftedRound(msgspec.Struct, frozen=True, array_like=True):
    """One round's draft by `drafter`: `n_drafted` tokens, the longest path of them `depth`, and `n_accepted`
    of it that were emitted."""

    drafter: str
    n_drafted: int
    depth: int
    n_accepted: int

    def timings(self) -> Timings:
        """What this draft adds to the sums of its request; the round itself is not counted."""
        totals = DrafterTotals(n_rounds=1, n_drafted=self.n_drafted, n_accepted=self.n_accepted)
        return Timings(
            draft_n=self.n_drafted,
            draft_n_accepted=self.n_accepted,
            accepted_per_position=[1] * self.n_accepted + [0] * (self.depth - self.n_accepted),
            drafted_per_position=[1] * self.depth,
            drafters={self.drafter: totals},
        )


class Work(msgspec.Struct, frozen=True, array_like=True):
    """`party`, the target or a drafter, computed so long, in milliseconds of the monotonic clock; `is_ahead`:
    the draft model went on while the target did."""

    party: str
    start_ms: float
    end_ms: float
    is_ahead: bool = False


class RoundTrace(msgspec.Struct, frozen=True, array_like=True):
    """One round of a request, the `index`-th, that emitted `n_tokens` and ended at `time_ms` of the monotonic
    clock. `draft_ms`, `verify_ms` and `work` are those of its step, which other requests may have shared."""

    index: int
    n_tokens: int
    drafted: DraftedRound | None
    draft_ms: float
    verify_ms: float
    time_ms: float
    work: list[Work] = []


def _added(ours: Sequence[int], theirs: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip_longest(ours, theirs, fillvalue=0)]


def _merged(
    ours: Mapping[str, DrafterTotals], theirs: Mapping[str, DrafterTotals]
) -> dict[str, DrafterTotals]:
    merged = dict(ours)
    for name, totals in theirs.items():
        merged[name] = merged[name] + totals if name in merged else totals
    return merged
