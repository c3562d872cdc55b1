"""Asks controllers how far to guess, and drafters to guess. Their failures cost drafts, never a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.core import Draft, Float32Array, RoundResult, Verdict
from lucebox.draft_length.base import DraftLengthController, Plan, SequenceState
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import DraftRequest, Observation
from lucebox.engine.pool import DrafterPool
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence

logger = logging.getLogger(__name__)


class Drafting:
    """Who guesses for which sequence. `costs` is kept up to date from every round."""

    def __init__(self, pool: DrafterPool, costs: CostTable) -> None:
        self._pool = pool
        self._costs = costs

    def draft(self, rounds: Sequence[Round], n_draft_rows: int) -> None:
        """Gives every round that may have one its draft, of at most `n_draft_rows` tokens."""
        by_slot = {r.sequence.slot: r for r in rounds}
        for name, plans in self._plan(by_slot, n_draft_rows).items():
            requests = [_request(by_slot[slot].sequence, plan) for slot, plan in plans.items()]
            started_s = time.perf_counter()
            try:
                drafter = self._pool.get(name)
                for slot in plans:
                    by_slot[slot].n_caught_up = drafter.n_behind(slot, len(by_slot[slot].sequence.tokens))
                drafts = drafter.propose(requests)
                for request, draft in zip(requests, drafts, strict=True):
                    _check(draft, request, by_slot[request.sequence].sequence.acceptance)
            except Exception:
                logger.exception("drafter %s failed; %d requests go on without drafts", name, len(requests))
                for request in requests:
                    self._give_up(by_slot[request.sequence].sequence)
                continue
            elapsed_s = time.perf_counter() - started_s
            for request, draft in zip(requests, drafts, strict=True):
                r = by_slot[request.sequence]
                r.drafter, r.draft, r.draft_ms = name, draft, 1000.0 * elapsed_s
                r.sequence.clock.draft_s += elapsed_s

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
        self._costs.update(result)
        if sequence.controller is None:
            return
        observation = Observation(sequence.slot, sequence.tokens, n_prefix, r.draft, verdict, logits)
        try:
            for drafter in self._pool.singles():
                drafter.observe(observation)
            sequence.controller.update(result)
        except Exception:
            logger.exception("a drafter or controller failed; request %s goes on without drafts", sequence.id)
            self._give_up(sequence)

    def remember(self, sequence: EngineSequence) -> None:
        """Drafters learn from a request that ended.

        Not from one that was drawn by a seed of the user's: the next request of that seed meets the same
        random numbers, of which its drafts must not know.
        """
        params = sequence.submit.params
        if params.seed is not None and not params.greedy:
            return
        try:
            self._pool.remember(sequence.tokens, len(sequence.submit.prompt))
        except Exception:
            logger.exception("a drafter cannot learn from request %s, which ended", sequence.id)

    def release(self, slot: int, controller: DraftLengthController | None) -> None:
        """Everybody forgets the sequence in `slot`; one who cannot stops nobody."""
        for learner in (*self._pool.singles(), controller):
            try:
                if learner is not None:
                    learner.release(slot)
            except Exception:
                logger.exception("%s cannot forget a sequence that ended", type(learner).__name__)

    def close(self) -> None:
        self._pool.close()

    def _give_up(self, sequence: EngineSequence) -> None:
        """`sequence` goes on without drafts, and its slot's next owner finds nothing of it."""
        self.release(sequence.slot, sequence.controller)
        sequence.controller = None

    def _plan(self, by_slot: Mapping[int, Round], n_draft_rows: int) -> dict[str, dict[int, Plan]]:
        """Plans of the sequences that draft in this step, by drafter and slot."""
        batches: dict[int, tuple[DraftLengthController, list[SequenceState]]] = {}
        for r in by_slot.values():
            sequence = r.sequence
            n_room = min(sequence.n_left - 1, n_draft_rows)
            if sequence.n_missing == 1 and sequence.controller and sequence.drafters and n_room > 0:
                try:
                    state = self._state(sequence, n_room)
                except Exception:
                    logger.exception("a drafter failed; request %s goes on without drafts", sequence.id)
                    self._give_up(sequence)
                    continue
                batches.setdefault(id(sequence.controller), (sequence.controller, []))[1].append(state)
        plans: dict[str, dict[int, Plan]] = {}
        for controller, states in batches.values():
            try:
                bounded = self._bounded_plans(controller, states)
            except Exception:
                logger.exception(
                    "a draft-length controller failed; %d requests go on without drafts", len(states)
                )
                for state in states:
                    self._give_up(by_slot[state.sequence].sequence)
                continue
            for slot, plan in bounded.items():
                plans.setdefault(plan.drafter, {})[slot] = plan
        return plans

    def _state(self, sequence: EngineSequence, n_room: int) -> SequenceState:
        n_tokens = len(sequence.tokens)
        n_behind = {
            name: self._pool.get(name).n_behind(sequence.slot, n_tokens) for name in sequence.drafters
        }
        return SequenceState(sequence.slot, n_tokens, n_room, sequence.drafters, n_behind)

    def _bounded_plans(
        self, controller: DraftLengthController, states: Sequence[SequenceState]
    ) -> dict[int, Plan]:
        """The plans that ask for drafts, by slot, none longer than its room."""
        planned = controller.plan(states, self._costs)
        bounded: dict[int, Plan] = {}
        for state in states:
            plan = planned[state.sequence]
            n_max = min(plan.n_max, state.n_room)
            if n_max > 0:
                if plan.drafter not in state.drafters:
                    raise ValueError(f"there is no drafter {plan.drafter!r}")
                bounded[state.sequence] = replace(plan, n_max=n_max)
        return bounded


def _check(draft: Draft, request: DraftRequest, acceptance: AcceptanceStrategy) -> None:
    """Raises ValueError for a draft that no forward or strategy could take: a bug of the drafter."""
    n = len(draft)
    if n > request.n_max or len(draft.parents) != n or len(draft.q) != n:
        raise ValueError(
            f"{n} tokens, {len(draft.parents)} parents, {len(draft.q)} laws; n_max {request.n_max}"
        )
    if n == 0:
        return
    if draft.tokens.min() < 0 or draft.tokens.max() >= request.sampler.n_vocab:
        raise ValueError(f"token ids {draft.tokens.tolist()} of a vocabulary of {request.sampler.n_vocab}")
    if draft.parents.min() < 0 or (draft.parents > np.arange(n)).any():
        raise ValueError(f"parents {draft.parents.tolist()} are no tree")
    if not draft.is_chain and not acceptance.supports_trees:
        raise ValueError(f"a tree for {type(acceptance).__name__}, which judges chains only")


def _request(sequence: EngineSequence, plan: Plan) -> DraftRequest:
    assert sequence.controller is not None
    return DraftRequest(
        sequence=sequence.slot,
        prefix=sequence.tokens,
        n_max=plan.n_max,
        draw_mode=sequence.acceptance.draw_mode,
        sampler=sequence.sampler,
        random=sequence.random(),
        keep_drafting=partial(sequence.controller.keep_drafting, sequence.slot),
        stop_tokens=sequence.draft_stop_tokens,
        shape=plan.shape if sequence.acceptance.supports_trees else (),
        needs_q=sequence.acceptance.needs_q,
        prediction=sequence.submit.prediction,
    )


def _result(r: Round, verdict: Verdict, n_prefix: int, n_batch_rows: int, verify_ms: float) -> RoundResult:
    return RoundResult(
        sequence=r.sequence.slot,
        drafter=r.drafter,
        n_drafted=len(r.draft),
        n_accepted=len(verdict.path),
        draft_ms=r.draft_ms,
        verify_ms=verify_ms,
        n_rows=r.n_rows,
        n_kv=n_prefix,
        depth=r.draft.depth,
        n_caught_up=r.n_caught_up,
        n_batch_rows=n_batch_rows,
    )
