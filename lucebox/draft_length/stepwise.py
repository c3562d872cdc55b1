"""One sequence's view of a drafter that computes its guesses one by one, as a draft model does."""

from __future__ import annotations

from dataclasses import dataclass, field

from lucebox.core import RoundResult
from lucebox.draft_length.base import Costs, SequenceState
from lucebox.draft_length.confidence import HIGHEST, Confidence, bucket_of
from lucebox.draft_length.ledger import Patience
from lucebox.draft_length.prices import N_DEPTHS, Arm, Prices, best_arm
from lucebox.draft_length.survival import Hazards, Shift, shifted

ACCEPTED_PRIOR = 0.85
DRAFTED_PRIOR = 0.95
N_TRIAL_TOKENS = 4  # most tokens of a draft that is a trial
N_SURE = 8.0  # rounds of anyone after which what is known of a drafter is more than a guess
N_UNSURE_TOKENS = 7  # most tokens of a draft until then
IDLE_FADE = 0.98  # of what is known of a sequence, per round without this drafter


@dataclass(slots=True)
class StepwiseEvidence:
    """Of one drafter under one way of judging, over all sequences."""

    accepted: Hazards = field(default_factory=lambda: Hazards(N_DEPTHS, ACCEPTED_PRIOR))
    drafted: Hazards = field(default_factory=lambda: Hazards(N_DEPTHS, DRAFTED_PRIOR))
    confidence: Confidence = field(default_factory=Confidence)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter promises: to make tokens cheaper by `gain_ms` in all, catching up included.

    At worst, the next round loses `risk_ms`. A trial's promise is what may be hoped for.
    """

    drafter: str
    arm: Arm
    gain_ms: float
    catch_up_ms: float
    risk_ms: float
    is_trial: bool


@dataclass(slots=True)
class Stepwise:
    """Evidence of all sequences, shifted by this one's, and the draft under way."""

    evidence: StepwiseEvidence
    prices: Prices = field(default_factory=lambda: Prices(0, 1, [0.0], 0.0))
    forward_ms: float = 0.0
    is_trying: bool = False
    _accepted: Shift = field(default_factory=Shift)
    _drafted: Shift = field(default_factory=Shift)
    _confident: Shift = field(default_factory=Shift)
    _token_ms: float = 0.0  # what a token is worth: its price elsewhere
    _n_max: int = 0
    _stands: float = 1.0  # the probability that all drafted tokens are accepted
    _first_depth: int = 0
    _buckets: list[int] = field(default_factory=list)

    def offer(
        self, drafter: str, state: SequenceState, costs: Costs, horizon: float, token_ms: float
    ) -> Offer | None:
        """The best length over the next `horizon` tokens, if any is, or may turn out, better than none."""
        prices, n_behind = self.prices, state.n_behind.get(drafter, 0)
        self.forward_ms = costs.draft_ms(drafter, 1, state.n_tokens)
        catch_up_ms = costs.catch_up_ms(drafter, n_behind, state.n_tokens)
        next_ms = costs.catch_up_ms(drafter, 1, state.n_tokens)
        e, n_room = self.evidence, state.n_room if self.is_sure else min(state.n_room, N_UNSURE_TOKENS)
        for is_trial in (False, True):
            arm = best_arm(
                prices,
                e.accepted.known,
                e.drafted.known,
                self._accepted.upper_odds if is_trial else self._accepted.odds,
                self._drafted.odds,
                self.forward_ms,
                next_ms,
                min(n_room, N_TRIAL_TOKENS) if is_trial else n_room,
                token_ms,
            )
            n_own = arm.n_tokens - prices.n_sequences + 1.0
            saved_ms = max(arm.advantage_ms, arm.n_tokens * token_ms - arm.ms)
            gain_ms = horizon / n_own * saved_ms - catch_up_ms
            if arm.n and gain_ms > 0.0:
                verify_ms = prices.verify[arm.n] - prices.verify[0]
                risk_ms = catch_up_ms + arm.n * self.forward_ms + verify_ms
                return Offer(drafter, arm, gain_ms, catch_up_ms, risk_ms, is_trial)
        return None

    @property
    def is_sure(self) -> bool:
        return self.evidence.accepted.n_rounds >= N_SURE

    def begin(self, offer: Offer) -> None:
        """A draft of at most `offer.arm.n` tokens is asked for."""
        self._n_max = offer.arm.n
        self._token_ms = offer.arm.token_ms
        self._stands, self._first_depth = 1.0, 0
        self._buckets.clear()

    def keep_drafting(self, q: float, depth: int) -> bool:
        """Whether a token whose law peaks at `q` is worth its row, or what may follow it is."""
        if not self._buckets:
            self._first_depth = depth
        bucket = bucket_of(q)
        self._buckets.append(bucket)
        stands = self._stands * shifted(self.evidence.confidence.known[bucket], self._confident.odds)
        if self._is_worth(stands, depth, depth + 1, stands * self._token_ms):
            self._stands = stands
            return True
        return False

    def is_long_enough(self, depth: int) -> bool:
        """Whether one more forward, behind `depth` tokens, is not worth its time."""
        if depth < self._n_max and self._is_worth(self._stands, depth, depth, 0.0):
            return False
        self._n_max = min(self._n_max, depth)  # costs ended it, which says nothing of what would follow
        return True

    def survival(self, n: int) -> list[float]:
        """The probability that each of `n` tokens stands with all before it."""
        known, odds, stands = self.evidence.accepted.known, self._accepted.odds, 1.0
        result = []
        for i in range(min(n, N_DEPTHS)):
            stands *= shifted(known[i], odds)
            result.append(stands)
        return result

    def idle(self) -> None:
        """A round without this drafter."""
        if self._accepted.n > 0.1:
            self._accepted.fade(IDLE_FADE)
            self._confident.fade(IDLE_FADE)

    def finish(self, result: RoundResult) -> None:
        """Learns what became of the draft."""
        e, n_accepted, n_max = self.evidence, result.n_accepted, self._n_max
        n_tried = min(n_accepted + 1, n_max, N_DEPTHS)
        self._accepted.add(min(n_accepted, n_tried), e.accepted.known[:n_tried])
        e.accepted.add(n_accepted, n_max)
        if result.n_judged:
            n_tried = min(result.depth + 1, n_max, N_DEPTHS)
            self._drafted.add(min(result.depth, n_tried), e.drafted.known[:n_tried])
            e.drafted.add(result.depth, n_max)
        n_judged_accepted = n_accepted - self._first_depth
        buckets = self._buckets[: max(0, result.depth - self._first_depth)]
        if buckets and n_judged_accepted >= 0:
            tried = buckets[: n_judged_accepted + 1]
            known = [e.confidence.known[b] for b in tried]
            self._confident.add(min(n_judged_accepted, len(tried)), known)
            e.confidence.add(buckets, n_judged_accepted)

    def _is_worth(self, stands: float, depth: int, n: int, gain_ms: float) -> bool:
        """Whether to go on from `depth` rows to `n` for `gain_ms`, or further, a forward for each token."""
        verify = self.prices.verify
        if n >= len(verify):
            return False
        if gain_ms > verify[n] - verify[depth]:
            return True
        a = self._usual(n)
        cost_ms = 0.0
        for further in range(n + 1, min(self._n_max, len(verify) - 1) + 1):
            stands *= a
            gain_ms += stands * self._token_ms
            cost_ms += self.forward_ms
            if gain_ms > cost_ms + verify[further] - verify[depth]:
                return True
            if stands < 0.05:
                return False
        return False

    def _usual(self, depth: int) -> float:
        """The probability that a token behind `depth` others is accepted, if it is drafted."""
        i = min(depth, N_DEPTHS - 1)
        a = self.evidence.accepted.known[i] / max(1e-3, self.evidence.drafted.known[i])
        return min(HIGHEST, shifted(min(HIGHEST, a), self._accepted.odds))
