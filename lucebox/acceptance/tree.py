"""Walks over drafted trees, shared by the strategies that judge several candidates for a place.

Draws are keyed by the row that a candidate follows and its number among that row's children, which on a
chain are the place in the draft and 0: no two candidates of a round share a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lucebox.acceptance.base import arrays
from lucebox.acceptance.kernels import tree, verify
from lucebox.core import Distribution, Draft, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom


@dataclass(frozen=True, slots=True)
class Candidate:
    """One child of a row: draft token `index`, the `sibling`-th drawn behind `row`, and the law `q` that it
    was drawn from (None: one-hot)."""

    index: int
    row: int
    sibling: int
    token: int
    q: Distribution | None

    def stands(self, p: Distribution, u: float) -> bool:
        """Whether u * q < p, strictly."""
        return verify.accepts(p.ids, p.probs, *arrays(self.q), self.token, u)

    def log_ratio(self, p: Distribution) -> float:
        """log p/q; minus infinity where p is 0."""
        return verify.log_ratio(p.ids, p.probs, *arrays(self.q), self.token)

    def residual(self, p: Distribution, scale: float = 1.0) -> tuple[Distribution, float]:
        """norm(max(scale * p - q, 0)) and its mass before normalising; p and 0 where nothing is left."""
        probs, mass = tree.residual(p.ids, p.probs, *arrays(self.q), self.token, scale)
        return replace(p, probs=probs), mass


Judge = Callable[[Distribution, Sequence[Candidate]], tuple[Candidate | None, Distribution]]
"""Of the target's law and the candidates behind one row: who is accepted, or None and what is left of p."""


def candidates(draft: Draft) -> dict[int, list[Candidate]]:
    """The children of every row that has any, in the order in which they were drawn; duplicates stay."""
    children: dict[int, list[Candidate]] = {}
    rows = zip(draft.parents.tolist(), draft.tokens.tolist(), draft.q, strict=True)
    for index, (row, token, q) in enumerate(rows):
        siblings = children.setdefault(row, [])
        siblings.append(Candidate(index, row, len(siblings), token, q))
    return children


def descend(draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom, judge: Judge) -> Verdict:
    """Walks down from the root as long as `judge` accepts a child; a row without children emits a bonus."""
    children = candidates(draft)
    path: list[int] = []
    row = 0
    while row in children:
        accepted, left = judge(p_rows[row], children[row])
        if accepted is None:
            return Verdict(tuple(path), sample(left, random.uniform(row, Purpose.RESIDUAL)), row)
        path.append(accepted.index)
        row = accepted.index + 1
    purpose = Purpose.BONUS if len(draft) else Purpose.PLAIN
    return Verdict(tuple(path), sample(p_rows[row], random.uniform(row, purpose)), row)


def one_by_one(random: RoundRandom) -> Judge:
    """Recursive rejection: each candidate stands with probability min(1, p/q), else p becomes
    norm(max(p - q, 0)) for the next. q is the law that the candidate was drawn from given those before it.
    """

    def judge(p: Distribution, siblings: Sequence[Candidate]) -> tuple[Candidate | None, Distribution]:
        for candidate in siblings:
            if candidate.stands(p, random.uniform(candidate.row, Purpose.ACCEPT, candidate.sibling)):
                return candidate, p
            p, _ = candidate.residual(p)
        return None, p

    return judge
