"""K-sequential selection (SpecTr; Sun et al. 2023, arXiv 2310.15141)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.acceptance.kernels import tree
from lucebox.acceptance.tree import Candidate, descend, one_by_one
from lucebox.acceptance.tree_reference import accepted_by_one_of
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import Purpose, RoundRandom


class KSequential(AcceptanceStrategy):
    """Accepts each of k independent candidates with probability min(1, p/(rho q)), under one rho for all.

    Lossless. beta = sum of min(q, p/rho) is accepted of one candidate; rho in [1, k] solves
    1 - (1 - beta)^k = rho beta. Any rho at or above the root is exact, and none below it.
    Candidates of different laws are judged in groups, each against what the one before left of p.
    """

    lossless = True
    needs_q = True
    supports_trees = True
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def judge(p: Distribution, siblings: Sequence[Candidate]) -> tuple[Candidate | None, Distribution]:
            for group in _groups(siblings):
                accepted, p = _select(p, group, random)
                if accepted is not None:
                    return accepted, p
            return None, p

        return descend(draft, p_rows, random, judge)


Plugin = KSequential


def _groups(siblings: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    """Runs of candidates that were drawn from one and the same law; a deterministic one stands alone."""
    start = 0
    for i in range(1, len(siblings) + 1):
        if i == len(siblings) or siblings[i].q is None or siblings[i].q is not siblings[start].q:
            yield siblings[start:i]
            start = i


def _select(
    p: Distribution, group: Sequence[Candidate], random: RoundRandom
) -> tuple[Candidate | None, Distribution]:
    """Who of `group` stands, or None and norm(p - min(q, p/rho) (1 - (1 - beta)^k) / beta)."""
    q, k = group[0].q, len(group)
    if q is None or k == 1:
        return one_by_one(random)(p, group)
    rho, beta = tree.spectr_ratio(p.ids, p.probs, q.ids, q.probs, k)
    for candidate in group:
        u = random.uniform(candidate.row, Purpose.ACCEPT, candidate.sibling)
        if candidate.stands(p, u * rho):
            return candidate, p
    share = accepted_by_one_of(beta, k) / beta if beta > 0.0 else 0.0
    return None, replace(p, probs=tree.spectr_residual(p.ids, p.probs, q.ids, q.probs, rho, share))
