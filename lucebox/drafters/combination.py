"""Several drafters in one round: the first guesses, and each further one goes on behind what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lucebox.core import Distribution, Draft
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest


class Combination(Drafter):
    """Drafts of `parts`, cheap ones first: where one ends short of n_max, the next one guesses on behind it.

    A tree that branches is left as it is; behind a chain, what is left of the shape may grow. Each token
    keeps the law it was drawn from, or None, so mixed drafts are judged like any other. Parts are owned by
    somebody else, who closes them and tells them of rounds.
    """

    def __init__(self, context: DrafterContext, parts: Sequence[Drafter]) -> None:
        super().__init__(context)
        assert len(parts) > 1
        self.parts = tuple(parts)

    def lost(self) -> str:
        return next(filter(None, (part.lost() for part in self.parts)), "")

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = self.parts[0].propose(requests)
        for part in self.parts[1:]:
            open_ends = [i for i, request in enumerate(requests) if _goes_on(drafts[i], request)]
            if open_ends:
                further = part.propose([_behind(drafts[i], requests[i]) for i in open_ends])
                for i, draft in zip(open_ends, further, strict=True):
                    drafts[i] = _joined(drafts[i], draft)
        return drafts

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        return sum(part.n_behind(sequence, n_prefix) for part in self.parts)

    def fork(self, source: int, target: int) -> None:
        for part in self.parts:
            part.fork(source, target)

    def release(self, sequence: int) -> None:
        for part in self.parts:
            part.release(sequence)


def _goes_on(draft: Draft, request: DraftRequest) -> bool:
    """Whether there is room behind `draft`, and one place to go on from."""
    if len(draft) >= request.n_max or not draft.is_chain:
        return False
    return not len(draft) or int(draft.tokens[-1]) not in request.stop_tokens


def _behind(draft: Draft, request: DraftRequest) -> DraftRequest:
    """The request that goes on behind `draft`."""
    n = len(draft)

    def keep_drafting(q_row: Distribution, depth: int) -> bool:
        keeps = request.keep_drafting(q_row, depth)
        behind.n_max = request.n_max - n  # which this question may have lowered
        return keeps

    behind = replace(
        request,
        prefix=[*request.prefix, *draft.tokens.tolist()],
        n_max=request.n_max - n,
        keep_drafting=keep_drafting,
        shape=request.shape[n:],
        n_before=request.n_before + n,
    )
    return behind


def _joined(chain: Draft, draft: Draft) -> Draft:
    """`draft` behind the last token of `chain`."""
    if not len(chain):
        return draft
    if not len(draft):
        return chain
    parents = np.concatenate([chain.parents, draft.parents + np.int32(len(chain))])
    return Draft(np.concatenate([chain.tokens, draft.tokens]), parents, [*chain.q, *draft.q])
