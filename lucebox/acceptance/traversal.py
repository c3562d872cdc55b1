"""Traversal verification, from the leaves to the root (Weng et al. 2025, arXiv 2505.12398)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.acceptance.tree import Candidate, candidates
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom


class Traversal(AcceptanceStrategy):
    """Judges whole paths: a node stands by what its path is worth, after everything drafted below it fell.

    Every node has a weight a, the root 1, and a law P, at first the target's. A child drawn as x from q gets
    min(1, a P(x)/q(x)). Depth first, a node without (remaining) children stands with probability a, and its
    P is sampled. If it falls, it is taken off the tree, and with Z the sum of max(a P - q, 0), its parent's P
    becomes that, normalised, and the parent's a becomes Z / (Z + 1 - a).

    Lossless: by induction over the tree, a node's text comes out with probability a times its law. A child
    yields min(q, a P), so max(a P - q, 0) is missing where it fell, which has probability Z + 1 - a. On a
    chain this is `block`.
    """

    lossless = True
    needs_q = True
    supports_trees = True
    draw_mode = DrawMode.WITHOUT_REPLACEMENT

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        children = {row: iter(siblings) for row, siblings in candidates(draft).items()}
        path: list[_Node] = [_Node(None, 0.0, p_rows[0])]
        while True:
            node = path[-1]
            child = next(children.get(node.row, iter(())), None)
            if child is not None:
                log_weight = node.log_weight_of(child)
                if log_weight > -math.inf:
                    path.append(_Node(child, log_weight, p_rows[child.index + 1]))
                else:  # nothing behind it could stand either
                    node.lose(child)
            elif node.came_from is None or node.stands(random):
                return _verdict(draft, path, random)
            else:
                path.pop()
                path[-1].lose(node.came_from)


Plugin = Traversal


class _Node:
    """A node on the path under judgement, with what is left of its law."""

    __slots__ = ("came_from", "has_lost", "law", "log_weight")

    def __init__(self, came_from: Candidate | None, log_weight: float, law: Distribution) -> None:
        self.came_from = came_from
        self.log_weight = log_weight
        self.law = law
        self.has_lost = False

    @property
    def row(self) -> int:
        return 0 if self.came_from is None else self.came_from.index + 1

    def log_weight_of(self, child: Candidate) -> float:
        """log min(1, a P(x)/q(x)) of a child x."""
        return min(0.0, self.log_weight + child.log_ratio(self.law))

    def lose(self, child: Candidate) -> None:
        """The child and all below it fell."""
        self.has_lost = True
        weight = math.exp(self.log_weight)
        self.law, mass = child.residual(self.law, weight)
        rest = mass + 1.0 - weight
        self.log_weight = (math.log(mass / rest) if mass > 0.0 else -math.inf) if rest > 0.0 else 0.0

    def stands(self, random: RoundRandom) -> bool:
        assert self.came_from is not None
        u = random.uniform(self.came_from.row, Purpose.ACCEPT, self.came_from.sibling)
        return u < math.exp(self.log_weight)


def _verdict(draft: Draft, path: Sequence[_Node], random: RoundRandom) -> Verdict:
    last = path[-1]
    purpose = Purpose.RESIDUAL if last.has_lost else Purpose.BONUS if len(draft) else Purpose.PLAIN
    token = sample(last.law, random.uniform(last.row, purpose))
    accepted = tuple(node.came_from.index for node in path if node.came_from is not None)
    return Verdict(accepted, token, last.row)
