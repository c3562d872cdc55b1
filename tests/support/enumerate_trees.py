"""Exact output laws of the production strategies on drafted trees, by rational enumeration.

As tests.support.enumerate does it for chains: random numbers are answered by one point of every interval
between the thresholds, and outcomes weighed by the lengths. Thresholds come from the exact laws here; wrong
ones cannot make a wrong strategy look right, for what comes out is compared with laws that know nothing of
them. The thresholds of `kseq` are irrational, and its laws exact to within 1e-15.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, product

import numpy as np

from lucebox.acceptance import AcceptanceStrategy
from lucebox.acceptance.kseq import KSequential
from lucebox.acceptance.traversal import Traversal
from lucebox.core import Draft, DrawMode
from lucebox.research.exact_tree import drawn, kseq_ratio
from lucebox.sampling.random import Purpose
from tests.support.enumerate import (
    Law,
    Model,
    Outcomes,
    UnansweredError,
    distribution,
    one_hot,
    residual,
)

ONE = Fraction(1)
ROUNDING = Fraction(1, 2**50)  # what an irrational root leaves of a law that it exhausts
Verdicts = dict[tuple[tuple[int, ...], int], Fraction]
"""(accepted draft indices, emitted token) to probability."""


@dataclass(frozen=True)
class ExactTree:
    """A drafted tree: `p[r]` is the target's law behind row r, `q[i]` the one that token i was drawn from."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    p: tuple[Law, ...]
    q: tuple[Law, ...]

    def children(self, row: int) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent == row]

    def text(self, path: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.tokens[i] for i in path)

    def draft(self, *, deterministic: bool = False, sparse: bool = False) -> Draft:
        """Siblings drawn from equal laws share one object, as drafters have it."""
        laws = [None if deterministic else distribution(q, sparse=sparse) for q in self.q]
        return Draft(np.array(self.tokens, np.int32), np.array(self.parents, np.int32), laws)


@dataclass
class _Thresholds:
    """`chances[i]` parts the numbers that judge token i; corrections at row r are drawn from `left[r]`."""

    chances: dict[int, Fraction] = field(default_factory=dict)
    left: dict[int, Law] = field(default_factory=dict)


def _thresholds(strategy: AcceptanceStrategy, tree: ExactTree) -> _Thresholds:
    found = _Thresholds()
    if isinstance(strategy, Traversal):
        _walk(tree, 0, ONE, found)
        return found
    for row, law in enumerate(tree.p):
        found.left[row] = _one_row(strategy, tree, tree.children(row), law, found)
    return found


def _one_row(
    strategy: AcceptanceStrategy, tree: ExactTree, siblings: Sequence[int], p: Law, found: _Thresholds
) -> Law:
    groups = [[i] for i in siblings]
    if isinstance(strategy, KSequential) and len({tree.q[i] for i in siblings}) == 1:
        groups = [list(siblings)]
    for group in groups:
        q, k = tree.q[group[0]], len(group)
        rho, beta = kseq_ratio(p, q, k)
        for i in group:
            found.chances[i] = min(ONE, p[tree.tokens[i]] / (rho * q[tree.tokens[i]]))
        share = (1 - (1 - beta) ** k) / beta if beta else Fraction(0)
        taken = tuple(share * min(b, a / rho) for a, b in zip(p, q, strict=True))
        p = residual(p, tuple(a if 0 < a - t < ROUNDING else t for a, t in zip(p, taken, strict=True)))
    return p


def _walk(tree: ExactTree, row: int, weight: Fraction, found: _Thresholds) -> Fraction:
    """Thresholds at and below `row`; what its weight comes to when all below it fell."""
    p = tree.p[row]
    for i in tree.children(row):
        token, q = tree.tokens[i], tree.q[i]
        found.chances[i] = _walk(tree, i + 1, min(ONE, weight * p[token] / q[token]), found)
        excess = [max(weight * a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
        mass = sum(excess, Fraction(0))
        p = tuple(w / mass for w in excess) if mass else p
        weight = mass / (mass + 1 - weight) if mass + 1 - weight else ONE
    found.left[row] = p
    return weight


@dataclass
class _Script:
    """Stands in for RoundRandom."""

    tree: ExactTree
    thresholds: _Thresholds
    answers: list[float]
    n_asked: int = 0

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        if purpose is Purpose.ACCEPT:
            chance = self.thresholds.chances[self.tree.children(offset)[sibling]]
            return self._answer((chance, 1 - chance))
        if purpose is Purpose.RESIDUAL:
            return self._answer(self.thresholds.left[offset])
        return self._answer(self.tree.p[offset])

    def _answer(self, weights: Sequence[Fraction]) -> float:
        if self.n_asked < len(self.answers):
            self.n_asked += 1
            return self.answers[self.n_asked - 1]
        ends = list(accumulate(weights))
        raise UnansweredError([(float(e - w / 2), w) for e, w in zip(ends, weights, strict=True) if w])


def verdicts(
    strategy: AcceptanceStrategy, tree: ExactTree, *, deterministic: bool = False, sparse: bool = False
) -> Verdicts:
    """The law of what `strategy` decides on `tree`."""
    rows = [distribution(p, sparse=sparse) for p in tree.p]
    draft = tree.draft(deterministic=deterministic, sparse=sparse)
    thresholds = _thresholds(strategy, tree)
    found: defaultdict[tuple[tuple[int, ...], int], Fraction] = defaultdict(Fraction)
    pending: list[tuple[list[float], Fraction]] = [([], ONE)]
    while pending:
        answers, weight = pending.pop()
        try:
            script = _Script(tree, thresholds, answers)
            verdict = strategy.verify(draft, rows, script)  # type: ignore[arg-type]
            assert verdict.row == (verdict.path[-1] + 1 if verdict.path else 0)
            found[verdict.path, verdict.token] += weight
        except UnansweredError as asked:
            pending += [([*answers, u], weight * w) for u, w in asked.intervals]
    assert sum(found.values()) == 1
    return dict(found)


def trees(
    target: Model, drafter: Model, shape: tuple[int, ...], mode: DrawMode
) -> Iterator[tuple[ExactTree, Fraction]]:
    """Every tree of `shape` that a drafter of this mode may propose behind nothing, and how likely it is."""
    yield from _grown(ExactTree((), (), (target(()),), ()), [((), 0)], target, drafter, shape, mode)


def _grown(
    tree: ExactTree,
    frontier: list[tuple[tuple[int, ...], int]],
    target: Model,
    drafter: Model,
    shape: tuple[int, ...],
    mode: DrawMode,
) -> Iterator[tuple[ExactTree, Fraction]]:
    if not shape:
        yield tree, ONE
        return
    for choice in product(*(_siblings(drafter(prefix), shape[0], mode) for prefix, _ in frontier)):
        tokens, parents, p, q = list(tree.tokens), list(tree.parents), list(tree.p), list(tree.q)
        following, weight = [], ONE
        for (prefix, row), (children, w) in zip(frontier, choice, strict=True):
            weight *= w
            for token, law in children:
                tokens.append(token)
                parents.append(row)
                q.append(law)
                p.append(target((*prefix, token)))
                following.append(((*prefix, token), len(tokens)))
        grown = ExactTree(tuple(tokens), tuple(parents), tuple(p), tuple(q))
        for rest, w in _grown(grown, following, target, drafter, shape[1:], mode):
            yield rest, weight * w


def _siblings(q: Law, n: int, mode: DrawMode) -> list[tuple[list[tuple[int, Law]], Fraction]]:
    if mode is DrawMode.ARGMAX:
        best = sorted((t for t, w in enumerate(q) if w), key=lambda t: (-q[t], t))[:n]
        return [([(t, one_hot(len(q), t)) for t in best], ONE)]
    found = []
    for tokens, weight in drawn(q, n, distinct=mode is DrawMode.WITHOUT_REPLACEMENT):
        left, children = q, []
        for token in tokens:
            children.append((token, left))
            if mode is DrawMode.WITHOUT_REPLACEMENT and left[token] != 1:
                left = tuple(w / (1 - left[token]) if t != token else Fraction(0) for t, w in enumerate(left))
        found.append((children, weight))
    return found


def first_tokens(
    strategy: AcceptanceStrategy,
    target: Model,
    drafter: Model,
    shape: tuple[int, ...],
    n: int,
    *,
    mode: DrawMode | None = None,
    sparse: bool = False,
) -> Outcomes:
    """The joint law of the first `n` tokens over as many rounds as it takes."""
    mode = mode or strategy.draw_mode
    done: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    running: Outcomes = {(): ONE}
    while running:
        following: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for prefix, weight in running.items():
            for tree, w in trees(_behind(target, prefix), _behind(drafter, prefix), shape, mode):
                outcomes = verdicts(strategy, tree, deterministic=mode is DrawMode.ARGMAX, sparse=sparse)
                for (path, token), x in outcomes.items():
                    text = (*prefix, *tree.text(path), token)
                    (done if len(text) >= n else following)[text[:n]] += weight * w * x
        running = dict(following)
    return dict(done)


def _behind(model: Model, prefix: tuple[int, ...]) -> Model:
    return lambda text: model((*prefix, *text))


def expected_accepted(
    strategy: AcceptanceStrategy, target: Model, drafter: Model, shape: tuple[int, ...]
) -> Fraction:
    """E[τ]: accepted draft tokens of one round."""
    total = Fraction(0)
    for tree, weight in trees(target, drafter, shape, strategy.draw_mode):
        total += weight * sum(len(path) * w for (path, _), w in verdicts(strategy, tree).items())
    return total
