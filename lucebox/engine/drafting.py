"""Asks controllers how far to guess, and drafters to guess. Their failures cost drafts, never a request."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.core import Draft, RoundResult, Verdict
from lucebox.draft_length.base import DraftLengthController, Plan, SequenceState
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence

logger = logging.getLogger(__name__)


class Drafting:
    """The drafters at hand, by name, preferred first."""

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self._drafters = dict(drafters)

    def draft(self, rounds: Sequence[Round], n_draft_rows: int) -> None:
        """Gives every round that may have one its draft, of at most `n_draft_rows` tokens."""
        by_slot = {r.sequence.slot: r for r in rounds}
        for name, plans in self._plan(by_slot, n_draft_rows).items():
            drafter = self._drafters[name]
            requests = [_request(by_slot[slot].sequence, plan) for slot, plan in plans.items()]
            started_s = time.perf_counter()
            try:
                drafts = drafter.propose(requests)
                for request, draft in zip(requests, drafts, strict=True):
                    _check(draft, request, by_slot[request.sequence].sequence.acceptance)
            except Exception:
                logger.exception("drafter %s failed; %d requests go on without it", name, len(requests))
                for request in requests:
                    by_slot[request.sequence].sequence.controller = None
                    drafter.release(request.sequence)
                continue
            elapsed_s = time.perf_counter() - started_s
            for request, draft in zip(requests, drafts, strict=True):
                r = by_slot[request.sequence]
                r.drafter, r.draft, r.draft_ms = name, draft, 1000.0 * elapsed_s
                r.sequence.clock.draft_s += elapsed_s

    def learn(self, r: Round, verdict: Verdict, n_prefix: int, verify_ms: float) -> None:
        """Tells drafter and controller what became of a round; `n_prefix` tokens stood before it."""
        sequence = r.sequence
        try:
            if r.drafter:
                self._drafters[r.drafter].observe(sequence.slot, n_prefix, verdict)
            if sequence.controller is not None:
                sequence.controller.update(_result(r, verdict, n_prefix, verify_ms))
        except Exception:
            logger.exception("a drafter or controller failed; request %s goes on without drafts", sequence.id)
            sequence.controller = None

    def release(self, slot: int) -> None:
        """Every drafter forgets the sequence in `slot`."""
        for drafter in self._drafters.values():
            drafter.release(slot)

    def close(self) -> None:
        for drafter in self._drafters.values():
            drafter.close()

    def _plan(self, by_slot: Mapping[int, Round], n_draft_rows: int) -> dict[str, dict[int, Plan]]:
        """Plans of the sequences that draft in this step, by drafter and slot."""
        if not self._drafters:
            return {}
        batches: dict[int, tuple[DraftLengthController, list[SequenceState]]] = {}
        for slot, r in by_slot.items():
            sequence = r.sequence
            n_room = min(sequence.n_left - 1, n_draft_rows)
            if sequence.n_missing == 1 and sequence.controller is not None and n_room > 0:
                state = SequenceState(slot, len(sequence.tokens), n_room)
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
                    by_slot[state.sequence].sequence.controller = None
                continue
            for slot, plan in bounded.items():
                plans.setdefault(plan.drafter, {})[slot] = plan
        return plans

    def _bounded_plans(
        self, controller: DraftLengthController, states: Sequence[SequenceState]
    ) -> dict[int, Plan]:
        """The plans that ask for drafts, by slot, none longer than its room."""
        planned = controller.plan(states, list(self._drafters))
        bounded: dict[int, Plan] = {}
        for state in states:
            plan = planned[state.sequence]
            n_max = min(plan.n_max, state.n_room)
            if n_max > 0:
                if plan.drafter not in self._drafters:
                    raise ValueError(f"there is no drafter {plan.drafter!r}")
                bounded[state.sequence] = Plan(plan.drafter, n_max)
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
    )


def _result(r: Round, verdict: Verdict, n_prefix: int, verify_ms: float) -> RoundResult:
    return RoundResult(
        sequence=r.sequence.slot,
        drafter=r.drafter,
        n_drafted=len(r.draft),
        n_accepted=len(verdict.path),
        draft_ms=r.draft_ms,
        verify_ms=verify_ms,
        n_rows=r.n_rows,
        n_kv=n_prefix,
    )
