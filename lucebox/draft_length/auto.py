"""Guesses only as far as that is expected to be faster than plain decoding, and risks little to find out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lucebox.core import Distribution, RoundResult
from lucebox.draft_length.allocation import allocate
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.draft_length.ledger import Ledger
from lucebox.draft_length.lookup import Lookup, LookupEvidence
from lucebox.draft_length.prices import N_DEPTHS, N_LOOKUP, Prices
from lucebox.draft_length.stepwise import Offer, Stepwise, StepwiseEvidence
from lucebox.errors import ConfigError

NEGLIGIBLE_SHARE = 0.003  # of a plain step: who costs no more may be asked in vain in every round
ASK_EVERY = 16  # rounds, where proposals are not worth their time
INVESTMENT_TOKENS = 2.0  # plain tokens' worth of catching up that is written off at once
HOPE = 0.8  # of a trial's promise, to weigh against what has to be caught up on for it
SMALL_INVESTMENT_TOKENS = 4.0  # plain tokens' worth that is always small enough
LARGE_INVESTMENT_TOKENS = 40.0  # that is never
INVESTMENT_SHARE = 0.12  # of a request's plain time, at most, for an investment whose return nobody knows
SPENT_DISCOUNT = 0.95  # of what tokens took, per round
FIRST_TOKENS = 2.0  # plain tokens that a sequence is taken to begin with
ANSWER_WEIGHT = 0.3  # of the newest answer in a running mean
FIRST_ANSWER_TOKENS = 200.0
PLAIN = Plan("", 0)


@dataclass(slots=True)
class _Track:
    """One sequence: its drafters, and the round that was planned for it."""

    acceptance: str
    lookups: dict[str, Lookup] = field(default_factory=dict)
    stepwise: dict[str, Stepwise] = field(default_factory=dict)
    prices: Prices | None = None
    offer: Offer | None = None
    n_generated: int = 0
    prompt_ms: float = 0.0
    debt_ms: float = 0.0  # of catching up that gains have not paid back yet
    spent_ms: float = 0.0  # discounted, as `n_written` tokens are
    n_written: float = 0.0

    def token_ms(self, prices: Prices) -> float:
        """What a token takes these days, at most what it takes plainly."""
        spent_ms = self.spent_ms + FIRST_TOKENS * prices.plain
        return min(prices.plain, spent_ms / (self.n_written + FIRST_TOKENS))

    def spend(self, ms: float, n_tokens: int) -> None:
        self.spent_ms = SPENT_DISCOUNT * self.spent_ms + ms
        self.n_written = SPENT_DISCOUNT * self.n_written + n_tokens


class Auto(DraftLengthController):
    """The no-regret default: plain decoding, every drafter at hand and every draft length are its arms.

    A round scores every shorter length, too. What is known of a drafter is shared by all sequences and
    shifted for each, so that a new request starts from what others taught. Costs are measured ones. A draft
    model starts only where it is expected to pay for what it has to catch up on, and stops where the next
    token is not worth its time (goodput, 2406.14066). Looked-up guesses are judged before they are verified.
    Trials are paid from a ledger of a share `epsilon` of all time, which also ends guessing that loses.
    """

    def __init__(self, *, epsilon: float = 0.015) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise ConfigError(f"draft length auto: epsilon must be between 0 and 1, not {epsilon}")
        self._ledger = Ledger(epsilon)
        self._lookup_ledger = Ledger(epsilon)
        self._tracks: dict[int, _Track] = {}
        self._lookups: dict[tuple[str, str], LookupEvidence] = defaultdict(LookupEvidence)
        self._stepwise: dict[tuple[str, str], StepwiseEvidence] = defaultdict(StepwiseEvidence)
        self._computing: set[str] = set()  # drafters with something to catch up on: they compute
        self._answer_tokens = FIRST_ANSWER_TOKENS
        self._n_tokens = 0
        self._costs: Costs | None = None

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        self._costs = costs
        plans = {state.sequence: self._plan(state, costs, len(batch)) for state in batch}
        if len(batch) > 1:
            self._share_rows(batch, plans, costs)
        return plans

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        drafting = self._drafting(sequence)
        return drafting is None or drafting.keep_drafting(float(q_row.probs.max()), depth)

    def is_long_enough(self, sequence: int, depth: int) -> bool:
        drafting = self._drafting(sequence)
        return drafting is not None and drafting.is_long_enough(depth)

    def trim(self, sequence: int, drafter: str, tokens: Sequence[int]) -> int:
        track = self._tracks.get(sequence)
        if track is None or track.prices is None or drafter not in track.lookups:
            return len(tokens)
        lookup = track.lookups[drafter]
        lookup.propose(tokens)
        if not tokens or self._lookup_ledger.balance_ms < 0.0:
            return 0
        return lookup.n_worth(len(tokens), track.prices, *self._elsewhere(track, track.prices))

    def update(self, result: RoundResult) -> None:
        track = self._tracks.get(result.sequence)
        if track is None or track.prices is None or self._costs is None:
            return  # the end of a prompt, which nothing was planned for
        n_tokens = result.n_accepted + 1
        self._n_tokens += n_tokens
        track.n_generated += n_tokens
        for lookup in track.lookups.values():
            lookup.emitted(result.tokens)
        for name, stepwise in track.stepwise.items():
            if name == result.drafter:
                stepwise.finish(result)
            else:
                stepwise.idle()
        self._book(track, result, n_tokens, self._costs)
        track.prices, track.offer = None, None

    def release(self, sequence: int) -> None:
        track = self._tracks.pop(sequence, None)
        if track is None:
            return
        self._answer_tokens += ANSWER_WEIGHT * (track.n_generated - self._answer_tokens)
        self._ledger.write_off(track.debt_ms)
        for stepwise in track.stepwise.values():
            if stepwise.is_trying:
                stepwise.evidence.patience.fail(self._n_tokens)

    def _plan(self, state: SequenceState, costs: Costs, n_sequences: int) -> Plan:
        track = self._tracks.get(state.sequence)
        if track is None:
            track = self._tracks[state.sequence] = _Track(state.acceptance, n_generated=state.n_generated)
        if not state.drafters:
            return PLAIN
        self._computing.update(name for name, n in state.n_behind.items() if n)
        looking_up = [name for name in state.drafters if name not in self._computing]
        n_max = min(state.n_room, N_LOOKUP if looking_up else N_DEPTHS)
        prices = track.prices = Prices.of(costs, state, n_sequences, n_max)
        if prices.plain <= 0.0:
            track.prices = None
            return PLAIN  # nothing was ever measured: this round will be
        for ledger in (self._ledger, self._lookup_ledger):
            ledger.open(prices.plain)
            ledger.pass_time((state.prompt_ms - track.prompt_ms) / n_sequences, prices.plain)
        track.prompt_ms = state.prompt_ms
        plan = self._compute(track, state, costs)
        for name in reversed(looking_up):
            if self._asks(track, name, costs, prices):
                plan = Plan(name, n_max, otherwise=plan if plan.n_max else None)
        return plan

    def _compute(self, track: _Track, state: SequenceState, costs: Costs) -> Plan:
        """Of the drafters that compute their guesses, the one that promises most, or plain decoding."""
        prices = track.prices
        assert prices is not None
        horizon = float(min(state.n_room, max(self._answer_tokens - track.n_generated, track.n_generated, 1)))
        best: Offer | None = None
        for name in state.drafters:
            if name not in self._computing:
                continue
            stepwise = track.stepwise.get(name)
            if stepwise is None:
                stepwise = track.stepwise[name] = Stepwise(self._stepwise[name, track.acceptance])
            stepwise.prices = prices
            offer = stepwise.offer(name, state, costs, horizon, track.token_ms(prices))
            if not self._allows(stepwise, offer, track, horizon):
                continue
            assert offer is not None
            if best is None or (not offer.is_trial, offer.gain_ms) > (not best.is_trial, best.gain_ms):
                best = offer
        track.offer = best
        if best is None:
            return PLAIN
        track.stepwise[best.drafter].begin(best)
        return Plan(best.drafter, best.arm.n)

    def _allows(self, stepwise: Stepwise, offer: Offer | None, track: _Track, horizon: float) -> bool:
        """Whether the ledger bears `offer`, and whoever failed lately has rested."""
        patience, balance_ms = stepwise.evidence.patience, self._ledger.balance_ms
        assert track.prices is not None
        plain_ms = track.prices.plain
        if offer is None:
            if stepwise.is_trying:
                patience.fail(self._n_tokens)
                stepwise.is_trying = False
            self._ledger.write_off(track.debt_ms)
            track.debt_ms = 0.0
            return False
        risk_ms, is_sure = offer.risk_ms, stepwise.is_sure and not offer.is_trial
        if offer.catch_up_ms > INVESTMENT_TOKENS * plain_ms:
            whole_ms = track.prompt_ms + horizon * plain_ms
            is_hopeful = HOPE * (offer.gain_ms + offer.catch_up_ms) > offer.catch_up_ms
            small_ms = max(SMALL_INVESTMENT_TOKENS * plain_ms, INVESTMENT_SHARE * whole_ms)
            is_small = offer.catch_up_ms < min(small_ms, LARGE_INVESTMENT_TOKENS * plain_ms)
            if self._ledger.capital_ms < 0.0 or not (is_sure or (is_hopeful and is_small)):
                return False
            risk_ms -= offer.catch_up_ms
        if is_sure:
            if stepwise.is_trying:
                patience.succeed()
                stepwise.is_trying = False
            return balance_ms >= 0.0
        if balance_ms < risk_ms or not patience.allows(self._n_tokens):
            return False
        if offer.is_trial:
            patience.begin()
            stepwise.is_trying = True
        return True

    def _asks(self, track: _Track, name: str, costs: Costs, prices: Prices) -> bool:
        """Whether `name` is worth asking: nearly always, since looking up costs next to nothing."""
        lookup = track.lookups.get(name)
        if lookup is None:
            lookup = track.lookups[name] = Lookup(self._lookups[name, track.acceptance])
        ms = costs.draft_ms(name, 1, prices.n_kv)
        if ms <= NEGLIGIBLE_SHARE * prices.plain or lookup.is_worth(ms):
            return True
        lookup.n_passed += 1
        return lookup.n_passed % ASK_EVERY == 0

    def _elsewhere(self, track: _Track, prices: Prices) -> tuple[float, float, float]:
        """Without a lookup: what a token is worth, what each one leaves to catch up on for a drafter that
        computes, and how far the round is ahead then."""
        offer, token_ms = track.offer, track.token_ms(prices)
        if offer is None or offer.is_trial or self._costs is None:
            return token_ms, 0.0, prices.n_sequences * token_ms - prices.verify[0]
        token_ms = offer.arm.token_ms
        behind_ms = self._costs.catch_up_ms(offer.drafter, N_DEPTHS, prices.n_kv) / N_DEPTHS
        return token_ms, behind_ms, offer.arm.n_tokens * token_ms - offer.arm.ms

    def _share_rows(self, batch: Sequence[SequenceState], plans: dict[int, Plan], costs: Costs) -> None:
        """Shortens what was planned for each sequence alone to what is best for all of them together."""
        drafting = {}
        for state in batch:
            offer = self._tracks[state.sequence].offer
            if offer is not None and not offer.is_trial:
                stepwise = self._tracks[state.sequence].stepwise[offer.drafter]
                drafting[state.sequence] = (offer, stepwise)
        if len(drafting) < 2:
            return
        n_rows = len(batch) + batch[0].n_other_rows
        lengths = allocate(
            {s: stepwise.survival(offer.arm.n) for s, (offer, stepwise) in drafting.items()},
            n_sequences=len(batch),
            verify_ms=lambda n: costs.verify_ms(n_rows + n, max(state.n_tokens for state in batch)),
            forward_ms=max(stepwise.forward_ms for _, stepwise in drafting.values()),
        )
        for sequence, (offer, stepwise) in drafting.items():
            n = lengths[sequence]
            plans[sequence] = _shortened(plans[sequence], offer.drafter, n)
            if n:
                stepwise.begin(replace(offer, arm=replace(offer.arm, n=n)))
            else:
                self._tracks[sequence].offer = None

    def _book(self, track: _Track, result: RoundResult, n_tokens: int, costs: Costs) -> None:
        """Charges ledgers by what rounds cost usually: how fast the machine is just now is nobody's fault."""
        prices, offer = track.prices, track.offer
        assert prices is not None
        plain_ms = prices.plain
        draft_ms, verify_ms = result.draft_ms, costs.verify_ms(result.n_batch_rows, result.n_kv)
        is_computed = offer is not None and offer.drafter == result.drafter
        if offer is not None and is_computed:
            forward_ms = track.stepwise[offer.drafter].forward_ms
            usual_ms = offer.catch_up_ms + max(result.n_judged, result.n_drafted) * forward_ms
            draft_ms = min(draft_ms, 2.0 * usual_ms)
            if offer.catch_up_ms > INVESTMENT_TOKENS * plain_ms:
                draft_ms -= min(draft_ms, offer.catch_up_ms)
                track.debt_ms += offer.catch_up_ms
        else:
            draft_ms = min(draft_ms, plain_ms)
        spent_ms = (draft_ms + verify_ms) / prices.n_sequences
        if not result.drafter:
            spent_ms = plain_ms  # whatever else was in the forward
        track.spend(spent_ms, n_tokens)
        lost_ms = spent_ms - n_tokens * plain_ms
        if is_computed and lost_ms < 0.0:
            paid_ms = min(track.debt_ms, -lost_ms)
            track.debt_ms -= paid_ms
            lost_ms += paid_ms
        ledger = self._lookup_ledger if result.drafter and not is_computed else self._ledger
        ledger.book(lost_ms, plain_ms)
        for ledger in (self._ledger, self._lookup_ledger):
            ledger.pass_time(n_tokens * plain_ms, plain_ms)

    def _drafting(self, sequence: int) -> Stepwise | None:
        track = self._tracks.get(sequence)
        if track is None or track.offer is None:
            return None
        return track.stepwise[track.offer.drafter]


def _shortened(plan: Plan, drafter: str, n: int) -> Plan:
    """`plan` with at most `n` tokens by `drafter`."""
    if plan.drafter == drafter:
        return replace(plan, n_max=n)
    assert plan.otherwise is not None
    return replace(plan, otherwise=_shortened(plan.otherwise, drafter, n))


Plugin = Auto
