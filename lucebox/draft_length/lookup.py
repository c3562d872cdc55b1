"""How far looked-up guesses get, learned from what is written anyway, verified or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucebox.draft_length.prices import N_LOOKUP, Prices
from lucebox.draft_length.survival import Hazards, Shift, shifted

PRIOR = 0.5
WORTH_WEIGHT = 0.05  # of the newest proposal in a running mean
N_LENGTHS = 5


def length_bucket(n: int) -> int:
    """Proposals of 1, 2 to 3, 4 to 7, 8 to 15 and more tokens: long ones come of long matches."""
    return min(N_LENGTHS, n.bit_length()) - 1


@dataclass(slots=True)
class LookupEvidence:
    """Of one drafter, over all sequences: depths that its proposals were right to, by their length."""

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
    worth_ms: float = 0.0  # a running mean of what a proposal gains
    _watched: Sequence[int] = ()
    _n_right: int = 0

    def propose(self, tokens: Sequence[int]) -> None:
        """Watches `tokens`, unless an earlier proposal is still open."""
        self.worth_ms *= 1.0 - WORTH_WEIGHT
        if not self._watched and len(tokens):
            self._watched, self._n_right = tokens, 0

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

    def n_worth(self, n: int, prices: Prices, token_ms: float, behind_ms: float) -> int:
        """How many of `n` proposed tokens are worth verifying, where a token costs `token_ms` otherwise and
        each one leaves `behind_ms` of work for another drafter."""
        known, odds = self.evidence.by_length[length_bucket(n)].known, self.shift.odds
        verify, worth_ms = prices.verify, token_ms - behind_ms
        n_others, stands, best = prices.n_sequences - 1, 1.0, 0
        best_ms = 0.0
        gain_ms = (n_others + 1) * token_ms - behind_ms
        for i in range(min(n, N_LOOKUP, len(verify) - 1)):
            stands *= shifted(known[i], odds)
            gain_ms += stands * worth_ms
            if gain_ms - verify[i + 1] > best_ms:
                best, best_ms = i + 1, gain_ms - verify[i + 1]
        self.worth_ms += WORTH_WEIGHT * best_ms
        return best

    def _settle(self) -> None:
        n, n_right = len(self._watched), self._n_right
        hazards = self.evidence.by_length[length_bucket(n)]
        self.shift.add(n_right, hazards.known[: min(n, n_right + 1)])
        hazards.add(n_right, n)
        self._watched = ()
