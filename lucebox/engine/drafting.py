"""Asks controllers how far to guess, and drafters to guess. Their failures cost drafts, never a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lucebox.core import Draft, Float32Array, RoundResult, Verdict
from lucebox.draft_length.base import DraftLengthController, Plan, SequenceState
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import Drafter, Observation
from lucebox.engine.asked import Asked, check_draft
from lucebox.engine.overlap import Overlap
from lucebox.engine.pool import DrafterPool
from lucebox.engine.round import Round
from lucebox.engine.safe_overlap import SafeOverlap
from lucebox.engine.sequence import EngineSequence
from lucebox.engine.timeline import DRAFT, Span, WorkHandler, ignore
from lucebox.errors import DraftLostError

logger = logging.getLogger(__name__)


class Drafting:
    """Who guesses for which sequence. `costs` is kept up to date from every round. Unless it `remembers`,
    drafters learn nothing from one request for the next. With `overlap` the draft model guesses on while the
    target verifies, and computes in a thread of its own. `on_work` hears of proposals.
    """

    def __init__(
        self,
        pool: DrafterPool,
        costs: CostTable,
        *,
        remembers: bool = True,
        overlap: Overlap | None = None,
        on_work: WorkHandler = ignore,
    ) -> None:
        self._pool = pool
        self._costs = costs
        self._remembers = remembers
        self._overlap = SafeOverlap(overlap)
        self._is_costs_failure_known = False
        self._on_work = on_work

    def draft(self, rounds: Sequence[Round], n_draft_rows: int) -> None:
        """Gives every round that may have one its draft, of at most `n_draft_rows` tokens."""
        self._overlap.settle()
        by_slot = {r.sequence.slot: r for r in rounds}
        try:
            self._draft(by_slot, n_draft_rows)
        except Exception:
            logger.exception("drafting failed; %d requests go on without drafts", len(rounds))
            for r in rounds:
                self._give_up(r.sequence)

    def _draft(self, by_slot: Mapping[int, Round], n_draft_rows: int) -> None:
        plans = self._plan(by_slot, n_draft_rows)
        while plans:
            by_drafter: dict[str, dict[int, Plan]] = {}
            for slot, plan in plans.items():
                by_drafter.setdefault(plan.drafter, {})[slot] = plan
            plans = {}
            for name, same in by_drafter.items():
                self._propose(name, same, by_slot)
                for slot, plan in same.items():
                    r = by_slot[slot]
                    if plan.otherwise is not None and not len(r.draft) and r.sequence.controller is not None:
                        plans[slot] = plan.otherwise

    def begin_ahead(self, rounds: Sequence[Round]) -> None:
        """The target begins to compute `rounds`: the draft model may guess what follows them."""
        self._overlap.begin(rounds, self._running_ahead)

    def end_ahead(self) -> None:
        """The target is done."""
        self._overlap.end()

    def learn(
        self,
        r: Round,
        verdict: Verdict,
        logits: Sequence[Float32Array],
        n_prefix: int,
        n_batch_rows: int,
        verify_ms: float,
    ) -> None:
        """Tells drafters, costs and controller what became of a round; `n_prefix` tokens stood before it."""
        sequence = r.sequence
        result = _result(r, verdict, n_prefix, n_batch_rows, verify_ms)
        verifies = self._overlap.teaches_verify
        self._learn_costs(lambda costs: costs.update(result, verify=verifies))
        if sequence.controller is None:
            return
        observation = Observation(sequence.slot, sequence.tokens, n_prefix, r.draft, verdict, logits)
        try:
            for drafter in self._pool.parts(sequence.drafters):
                if drafter.needs_model and _observes(drafter):
                    self._overlap.wait()
                drafter.observe(observation)
            sequence.controller.update(result)
        except Exception:
            logger.exception("a drafter or controller failed; request %s goes on without drafts", sequence.id)
            self._give_up(sequence)

    def remember(self, sequence: EngineSequence) -> None:
        """Drafters learn from a request that ended, or forget it.

        They do not learn from one that was drawn by a seed of the user's: the next request of that seed
        meets the same random numbers, of which its drafts must not know.
        """
        params = sequence.submit.params
        is_drawn_by_seed = params.seed is not None and not params.greedy
        self._overlap.wait()
        for drafter in self._pool.singles():
            try:
                if not self._remembers:
                    drafter.forget()
                elif not is_drawn_by_seed:
                    drafter.remember(sequence.tokens, len(sequence.submit.prompt))
            except Exception:
                logger.exception("a drafter cannot learn from request %s, which ended", sequence.id)

    def start(self, sequence: EngineSequence) -> None:
        """`sequence` begins to run: drafters look what they know of it already."""
        if sequence.controller is None:
            return
        self._overlap.wait()
        try:
            for drafter in self._pool.parts(sequence.drafters):
                drafter.start(sequence.slot, sequence.tokens)
        except Exception:
            logger.exception("a drafter failed; request %s goes on without drafts", sequence.id)
            self._give_up(sequence)

    def release(self, slot: int, controller: DraftLengthController | None, *, is_sound: bool = False) -> None:
        """Everybody forgets the sequence in `slot`, but for what may serve later ones if it `is_sound`; one
        who cannot stops nobody."""
        self._overlap.release(slot)
        for learner in (*self._pool.singles(), controller):
            if learner is not None:
                _release(learner, slot, retires=is_sound and self._remembers)

    def close(self) -> None:
        """Frees all that drafters hold. Idempotent."""
        self._overlap.close()
        for drafter in self._pool.singles():
            try:
                drafter.close()
            except Exception:
                logger.exception("%s cannot be closed", type(drafter).__name__)

    def _propose(self, name: str, plans: Mapping[int, Plan], by_slot: Mapping[int, Round]) -> None:
        """Has the drafter `name` guess for the sequences in `plans`."""
        asked = self._asked(plans, by_slot)
        if not asked:
            return
        started_s = time.perf_counter()
        try:
            drafter = self._pool.get(name)
            for a in asked:
                a.round.n_caught_up = drafter.n_behind(a.request.sequence, len(a.request.prefix))
            drafts = self._drafts(name, drafter, asked)
            for a, draft in zip(asked, drafts, strict=True):
                check_draft(draft, a.plan.n_max, a.round.sequence)
            ended_s = time.perf_counter()
            self._on_work(Span(DRAFT, started_s, ended_s))
            elapsed_ms = 1000.0 * (ended_s - started_s)
            if len(asked) == 1:
                n_drafted = len(drafts[0])
                self._learn_costs(lambda costs: costs.observe_proposal(name, n_drafted, elapsed_ms))
            drafts = [a.trimmed(name, draft) for a, draft in zip(asked, drafts, strict=True)]
        except DraftLostError as error:  # whose owner has said so
            logger.debug("drafter %s: %s", name, error)
            for a in asked:
                self._forget_lost(name, a.round.sequence)
            return
        except Exception:
            logger.exception("drafter %s failed; %d requests go on without drafts", name, len(asked))
            for a in asked:
                self._give_up(a.round.sequence)
            return
        for a, draft in zip(asked, drafts, strict=True):
            r = a.round
            r.drafter, r.draft, r.n_judged, r.n_draft_sequences = name, draft, a.n_judged, len(asked)
            r.n_planned = a.plan.n_max
            if a.n_judged:
                r.n_hidden = self._overlap.note_used(r.sequence, a.request.ahead, a.n_judged)
            r.draft_ms += elapsed_ms
            r.sequence.clock.draft_s += elapsed_ms / 1000.0

    def _asked(self, plans: Mapping[int, Plan], by_slot: Mapping[int, Round]) -> list[Asked]:
        """One whose strategy cannot say what it takes goes on without drafts."""
        asked = []
        for slot, plan in plans.items():
            try:
                asked.append(Asked(by_slot[slot], plan))
            except Exception:
                sequence = by_slot[slot].sequence
                logger.exception("nothing can be drafted for request %s", sequence.id)
                self._give_up(sequence)
        return asked

    def _drafts(self, name: str, drafter: Drafter, asked: Sequence[Asked]) -> list[Draft]:
        """What `drafter` proposes; if that takes the draft model, in its own thread, and from where it is."""
        overlap = self._overlap
        if not overlap.is_there or not any(part.needs_model for part in self._pool.parts([name])):
            return drafter.propose([a.request for a in asked])
        for a in asked:
            a.request.ahead = overlap.take(a.round.sequence, self._pool.parts([name]))
            a.keeps_laws = overlap.is_wanted
            a.request.judges_laws |= overlap.is_wanted
        return overlap.draft(lambda: drafter.propose([a.request for a in asked]))

    def _running_ahead(self, r: Round) -> Drafter | None:
        """Who may guess on behind the draft of `r`."""
        if not r.drafter or r.sequence.controller is None:
            return None
        return next((part for part in self._pool.parts([r.drafter]) if part.can_run_ahead), None)

    def _give_up(self, sequence: EngineSequence) -> None:
        """`sequence` goes on without drafts, and its slot's next owner finds nothing of it."""
        self.release(sequence.slot, sequence.controller)
        sequence.controller = None

    def _forget_lost(self, name: str, sequence: EngineSequence) -> None:
        """The draft model was lost in the middle of a draft by `name`: `sequence` goes on without it."""
        self._overlap.release(sequence.slot)
        for part in self._pool.parts([name]):
            if part.needs_model:
                _release(part, sequence.slot)

    def _able(self, sequence: EngineSequence) -> tuple[str, ...]:
        """The drafters of `sequence` that can guess now."""
        return tuple(name for name in sequence.drafters if not self._pool.get(name).lost())

    def _can_draft(self, r: Round, n_draft_rows: int) -> bool:
        """Whether somebody may guess behind `r`, and there is room for that."""
        sequence = r.sequence
        if not r.feed.draws or not (sequence.is_decoding or sequence.n_missing == 1):
            return False
        if sequence.controller is None or _room(sequence, n_draft_rows) <= 0:
            return False
        try:
            return bool(self._able(sequence))
        except Exception:
            logger.exception("a drafter failed; request %s goes on without drafts", sequence.id)
            self._give_up(sequence)
            return False

    def _learn_costs(self, learn: Callable[[CostTable], None]) -> None:
        """Without that, what is known stays; said once."""
        try:
            learn(self._costs)
        except Exception:
            if not self._is_costs_failure_known:
                logger.exception("costs cannot be learned; the old ones stay")
            self._is_costs_failure_known = True

    def _plan(self, by_slot: Mapping[int, Round], n_draft_rows: int) -> dict[int, Plan]:
        """Plans of the sequences that draft in this step, by slot."""
        n_rows = sum(r.feed.n_rows for r in by_slot.values())
        batches: dict[int, list[EngineSequence]] = {}
        for r in by_slot.values():
            if self._can_draft(r, n_draft_rows):
                batches.setdefault(id(r.sequence.controller), []).append(r.sequence)
        plans: dict[int, Plan] = {}
        for sequences in batches.values():
            controller = sequences[0].controller
            states = self._states(sequences, n_draft_rows, n_rows - len(sequences))
            if not states or controller is None:
                continue
            try:
                plans |= self._bounded_plans(controller, states)
            except Exception:
                logger.exception(
                    "a draft-length controller failed; %d requests go on without drafts", len(states)
                )
                for state in states:
                    self._give_up(by_slot[state.sequence].sequence)
        return plans

    def _states(
        self, sequences: Sequence[EngineSequence], n_draft_rows: int, n_other_rows: int
    ) -> list[SequenceState]:
        """What a controller is told of its sequences; a drafter that fails ends speculation for one."""
        states = []
        for sequence in sequences:
            try:
                states.append(self._state(sequence, n_draft_rows, n_other_rows))
            except Exception:
                logger.exception("a drafter failed; request %s goes on without drafts", sequence.id)
                self._give_up(sequence)
        return states

    def _state(self, sequence: EngineSequence, n_draft_rows: int, n_other_rows: int) -> SequenceState:
        n_tokens, drafters = len(sequence.tokens), self._able(sequence)
        n_behind = {name: self._pool.get(name).n_behind(sequence.slot, n_tokens) for name in drafters}
        return SequenceState(
            sequence.slot,
            n_tokens,
            _room(sequence, n_draft_rows),
            drafters,
            n_behind,
            acceptance=type(sequence.acceptance).__name__,
            n_generated=sequence.n_generated,
            prompt_ms=sequence.clock.prompt_ms,
            n_other_rows=n_other_rows,
        )

    def _bounded_plans(
        self, controller: DraftLengthController, states: Sequence[SequenceState]
    ) -> dict[int, Plan]:
        """The plans that ask for drafts, by slot, none longer than its room."""
        planned = controller.plan(states, self._costs)
        bounded = {state.sequence: _bounded(planned[state.sequence], state) for state in states}
        return {slot: plan for slot, plan in bounded.items() if plan is not None}


def _room(sequence: EngineSequence, n_draft_rows: int) -> int:
    """How many tokens may be drafted: each takes a row, and a mask where a grammar binds the answer."""
    n = min(sequence.n_left - 1, n_draft_rows)
    constraint = sequence.sampler.constraint
    return n if constraint is None or n <= 0 else constraint.spare.n_affordable(n)


def _bounded(plan: Plan | None, state: SequenceState) -> Plan | None:
    """`plan` and what it has for otherwise, none longer than there is room, without what asks for nothing."""
    if plan is None:
        return None
    otherwise = _bounded(plan.otherwise, state)
    n_max = min(plan.n_max, state.n_room)
    if n_max <= 0:
        return otherwise
    if plan.drafter not in state.drafters:
        raise ValueError(f"there is no drafter {plan.drafter!r}")
    return replace(plan, n_max=n_max, otherwise=otherwise)


def _release(learner: Drafter | DraftLengthController, slot: int, *, retires: bool = False) -> None:
    """Ends what `learner` holds of `slot`. A drafter that `retires` may keep what serves later ones."""
    try:
        if retires and isinstance(learner, Drafter):
            learner.retire(slot)
        else:
            learner.release(slot)
    except Exception:
        logger.exception("%s cannot forget a sequence that ended", type(learner).__name__)


def _observes(drafter: Drafter) -> bool:
    return type(drafter).observe is not Drafter.observe


def _result(r: Round, verdict: Verdict, n_prefix: int, n_batch_rows: int, verify_ms: float) -> RoundResult:
    return RoundResult(
        sequence=r.sequence.slot,
        drafter=r.drafter,
        n_drafted=len(r.draft),
        n_accepted=min(len(verdict.path), len(r.sequence.tokens) - n_prefix),
        draft_ms=r.draft_ms,
        verify_ms=verify_ms,
        n_rows=r.n_rows,
        n_kv=n_prefix,
        depth=r.draft.depth,
        n_caught_up=r.n_caught_up,
        n_batch_rows=n_batch_rows,
        n_judged=r.n_judged,
        n_draft_sequences=r.n_draft_sequences,
        n_hidden=r.n_hidden,
        tokens=r.sequence.tokens[n_prefix:],
    )
