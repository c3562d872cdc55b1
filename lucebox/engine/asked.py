"""What a round asks of a drafter, and what of the answer a forward and a strategy can take."""

from __future__ import annotations

import numpy as np

from lucebox.core import Distribution, Draft
from lucebox.draft_length.base import DraftLengthController, Plan
from lucebox.drafters.base import DraftRequest
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence


class Asked:
    """What one round asks of a drafter. Tells the controller of the laws that are drawn from, and counts
    them."""

    def __init__(self, r: Round, plan: Plan) -> None:
        sequence = r.sequence
        assert sequence.controller is not None
        self.round = r
        self.plan = plan
        self.n_judged = 0
        self.keeps_laws = False
        self._controller = sequence.controller
        self.request = DraftRequest(
            sequence=sequence.slot,
            prefix=sequence.tokens,
            n_max=plan.n_max,
            draw_mode=sequence.acceptance.draw_mode,
            sampler=sequence.sampler,
            random=sequence.random(),
            keep_drafting=self._keep_drafting,
            stop_tokens=sequence.draft_stop_tokens,
            shape=plan.shape if sequence.acceptance.supports_trees else (),
            needs_q=sequence.acceptance.needs_q,
            prediction=sequence.submit.prediction,
            judges_laws=type(self._controller).keep_drafting is not DraftLengthController.keep_drafting,
        )

    def trimmed(self, drafter: str, draft: Draft) -> Draft:
        """`draft`, or as much of it as the grammar allows and the controller has verified, of what was
        looked up and not drawn."""
        constraint = self.request.sampler.constraint
        if constraint is not None:
            draft = constraint.permitted(draft)
        if self.n_judged or not draft.is_chain or any(q is not None for q in draft.q):
            return draft
        n = self._controller.trim(self.request.sequence, drafter, draft.tokens.tolist())
        return draft if n >= len(draft) else Draft.chain(draft.tokens[:n].tolist(), [None] * n)

    def _keep_drafting(self, q_row: Distribution, depth: int) -> bool:
        self.n_judged += 1
        if self.keeps_laws:
            self.round.laws[depth] = q_row
        slot, constraint = self.request.sequence, self.request.sampler.constraint
        is_chain = not any(n > 1 for n in self.request.shape)
        # A branch must not end for what others cost: that would tell of tokens that are yet to be judged.
        if is_chain and constraint is not None and not constraint.spare.is_left:
            return False
        if not self._controller.keep_drafting(slot, q_row, depth):
            return False
        if is_chain and self._controller.is_long_enough(slot, depth + 1):
            self.request.n_max = min(self.request.n_max, depth + 1)
        return True


def check_draft(draft: Draft, n_max: int, sequence: EngineSequence) -> None:
    """Raises ValueError for a draft that no forward or strategy could take: a bug of the drafter."""
    n = len(draft)
    if n > n_max or len(draft.parents) != n or len(draft.q) != n:
        raise ValueError(f"{n} tokens, {len(draft.parents)} parents, {len(draft.q)} laws; n_max {n_max}")
    if n == 0:
        return
    for array in (draft.tokens, draft.parents):
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{array.dtype}{list(array.shape)} instead of int32[{n}]")
    n_vocab = sequence.sampler.n_vocab
    if draft.tokens.min() < 0 or draft.tokens.max() >= n_vocab:
        raise ValueError(f"token ids {draft.tokens.tolist()} of a vocabulary of {n_vocab}")
    if draft.parents.min() < 0 or (draft.parents > np.arange(n)).any():
        raise ValueError(f"parents {draft.parents.tolist()} are no tree")
    if not draft.is_chain and not sequence.acceptance.supports_trees:
        name = type(sequence.acceptance).__name__
        raise ValueError(f"a tree for {name}, which judges chains only")
