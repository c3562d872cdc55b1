"""How far looked-up guesses get, learned from what is written anyway, verified or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucebox.draft_length.prices import N_LOOKUP, Prices
from lucebox.draft_length.survival import Hazards, Shift, shifted

PRIOR = 0.5
WORTH_WEIGHT = 0.02  # of the newest proposal in a running mean
N_LENGTHS = 5
N_FIRST_ASKED = 128  # rounds before a drafter may be found to be not worth its time


def length_bucket(n: int) -> int:
    """Proposals of 1, 2 to 3, 4 to 7, 8 to 15 and more tokens: long ones come of long matches."""
    return min(N_LENGTHS, n.bit_length()) - 1


@dataclass(slots=True)
class LookupEvidence:
    """Of one drafter, over all sequences: depths that its proposals were right to, by their length; how often
    it was asked, and a running mean of what it gained by that, in milliseconds."""

    n_asked: int = 0
    worth_ms: float = 0.0
    by_length: list[Hazards] = field(
        default_factory=lambda: [Hazards(N_LOOKUP, PRIOR) for _ in range(N_LENGTHS)]
    )


@dataclass(slots=True)
class Lookup:
    """One sequence's view of a drafter: how its proposals fare here, and the one that is being watched.

    Every proposal is compared with what is written next, whether it was verified, cut short or dropped, so
    that learning costs no forward. Exact for greedy decoding; in a sample, a guess is right as often as it
    would have been accepted.
    """

    evidence: LookupEvidence
    shift: Shift = field(default_factory=Shift)
    n_passed: int = 0  # rounds in which it was not asked
    _watched: Sequence[int] = ()
    _n_right: int = 0

    def propose(self, tokens: Sequence[int]) -> None:
        """Watches `tokens`, unless an earlier proposal is still open."""
        self.evidence.n_asked += 1
        self.evidence.worth_ms *= 1.0 - WORTH_WEIGHT
        if not self._watched and len(tokens):
            self._watched, self._n_right = tokens, 0

    def is_worth(self, ms: float) -> bool:
        """Whether asking, which takes `ms`, has paid so far, or too little is known."""
        return self.evidence.n_asked < N_FIRST_ASKED or self.evidence.worth_ms >= ms

    def emitted(self, tokens: Sequence[int]) -> None:
        """What was written next."""
        watched = self._watched
        if not watched:
            return
        for token in tokens:
            if watched[self._n_right] != token:
                self._settle()
                return
            self._n_right += 1
            if self._n_right == len(watched):
                self._settle()
                return

    def n_worth(self, n: int, prices: Prices, token_ms: float, behind_ms: float, other_ms: float) -> int:
        """How many of `n` proposed tokens are worth verifying, where a token is worth `token_ms` and leaves
        `behind_ms` of work for another drafter, and the round is `other_ms` ahead without this one."""
        known, odds = self.evidence.by_length[length_bucket(n)].known, self.shift.odds
        verify, gain_ms = prices.verify, prices.n_sequences * token_ms - behind_ms
        stands, best, best_ms = 1.0, 0, other_ms
        for i in range(1, min(n, N_LOOKUP, len(verify) - 1) + 1):
            stands *= shifted(known[i - 1], odds)
            gain_ms += stands * (token_ms - behind_ms)
            if gain_ms - verify[i] > best_ms:
                best, best_ms = i, gain_ms - verify[i]
        self.evidence.worth_ms += WORTH_WEIGHT * (best_ms - other_ms)
        return best

    def _settle(self) -> None:
        n, n_right = len(self._watched), self._n_right
        hazards = self.evidence.by_length[length_bucket(n)]
        self.shift.add(n_right, hazards.known[: min(n, n_right + 1)])
        hazards.add(n_right, n)
        self._watched = ()
