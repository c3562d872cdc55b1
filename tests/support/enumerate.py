"""Exact output laws of the production strategies, by rational enumeration.

A strategy sees its random numbers only by comparing them with thresholds. So a `Script` answers each
request with points of every interval between thresholds, next to its ends, and weighs them by the
interval's length: no sampling, and no tolerance beyond NEAR of an interval for where thresholds lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np

from lucebox.acceptance import AcceptanceStrategy
from lucebox.acceptance.block import Block
from lucebox.acceptance.fuzzy import Fuzzy
from lucebox.acceptance.lenient import Lenient
from lucebox.acceptance.mentored import Mentored
from lucebox.acceptance.typical import Typical
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.research.enumeration import law as law  # for every test of exact laws
from lucebox.research.exact_chain import (
    Law,
    block_thresholds,
    mentored_law,
    mentored_leniency,
    residual,
)
from lucebox.sampling.random import Purpose

NEAR = Fraction(1, 1000)
Model = Callable[[tuple[int, ...]], Law]
Outcomes = dict[tuple[int, ...], Fraction]


@lru_cache(maxsize=1024)
def distribution(exact: Law, *, sparse: bool = False) -> Distribution:
    """`exact` in float32."""
    probs = np.array([float(w) for w in exact], np.float32)
    if not sparse:
        return Distribution(len(exact), probs)
    ids = np.flatnonzero(probs).astype(np.int32)
    return Distribution(len(exact), probs[ids], ids)


def one_hot(n: int, token: int) -> Law:
    return tuple(Fraction(int(i == token)) for i in range(n))


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where a strategy's decisions change: `chances[i]` parts the numbers of ACCEPT at offset i, those of
    RESIDUAL are parted as draws from `corrections[i]`."""

    chances: Sequence[Fraction]
    corrections: Sequence[Law]


def thresholds_of(
    strategy: AcceptanceStrategy, tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]
) -> Thresholds:
    """Of the exact laws. What comes out is weighed by these intervals, and compared with laws that know
    nothing of them."""
    leniency = Fraction(1)
    laws = list(p)
    match strategy:
        case Block():
            a, allowed = block_thresholds(tokens, p, q)
            return Thresholds(allowed, [residual(x, y, scale) for x, y, scale in zip(p, q, a, strict=False)])
        case Typical() | Fuzzy():
            return Thresholds((), p)
        case Lenient():
            leniency = Fraction(strategy.leniency)
        case Mentored():
            leniencies = [mentored_leniency(x, y, strategy.divergence) for x, y in zip(p, q, strict=False)]
            laws = [mentored_law(x, y, low) for x, y, low in zip(p, q, leniencies, strict=False)]
    chances = [min(Fraction(1), laws[i][x] / (leniency * q[i][x])) for i, x in enumerate(tokens)]
    return Thresholds(chances, [residual(x, y) for x, y in zip(laws, q, strict=False)])


class UnansweredError(Exception):
    """A random number was asked for that the script does not hold yet."""

    def __init__(self, intervals: list[tuple[float, Fraction]]) -> None:
        super().__init__()
        self.intervals = intervals


@dataclass
class Script:
    """Stands in for RoundRandom: answers from `answers`, in order. p[i] is the exact law at row i.

    A new request branches into every interval, at both of its ends or, for fewer branches, at one, which
    changes from request to request.
    """

    p: Sequence[Law]
    thresholds: Thresholds
    answers: list[float]
    both_ends: bool
    position: int = 0
    n_asked: int = field(default=0, init=False)

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        if purpose is Purpose.ACCEPT:
            chance = self.thresholds.chances[offset]
            return self._answer((chance, 1 - chance))
        if purpose is Purpose.RESIDUAL:
            return self._answer(self.thresholds.corrections[offset])
        return self._answer(self.p[offset])

    def at_position(self, position: int, purpose: Purpose) -> float:
        assert purpose is Purpose.TARGET
        return self._answer(self.p[position - self.position])

    def _answer(self, weights: Sequence[Fraction]) -> float:
        if self.n_asked < len(self.answers):
            self.n_asked += 1
            return self.answers[self.n_asked - 1]
        points: list[tuple[float, Fraction]] = []
        for end, w in zip(accumulate(weights), weights, strict=True):
            if w:
                ends = (float(end - w + NEAR * w), float(end - NEAR * w))
                chosen = ends if self.both_ends else (ends[hash((*self.answers, end)) & 1],)
                points += [(u, w / len(chosen)) for u in chosen]
        raise UnansweredError(points)


def _verdicts(
    strategy: AcceptanceStrategy,
    draft: Draft,
    p: Sequence[Law],
    q: Sequence[Law],
    *,
    sparse: bool,
    both_ends: bool,
) -> Iterator[tuple[Verdict, Fraction]]:
    """Every verdict on `draft`, with the length of the random numbers that lead to it."""
    rows = [distribution(row, sparse=sparse) for row in p]
    thresholds = thresholds_of(strategy, draft.tokens.tolist(), p, q)
    pending: list[tuple[list[float], Fraction]] = [([], Fraction(1))]
    while pending:
        answers, weight = pending.pop()
        try:
            script = Script(p, thresholds, answers, both_ends)
            yield strategy.verify(draft, rows, script), weight  # type: ignore[arg-type]
        except UnansweredError as asked:
            pending += [([*answers, u], weight * w) for u, w in asked.intervals]


def verdict_law(
    strategy: AcceptanceStrategy,
    tokens: Sequence[int],
    p: Sequence[Law],
    q: Sequence[Law],
    *,
    deterministic: bool = False,
    sparse: bool = False,
) -> dict[tuple[int, int], Fraction]:
    """The law of (accepted tokens, emitted token) for one drafted chain, q[i] one-hot if `deterministic`."""
    drawn = [None if deterministic else distribution(row, sparse=sparse) for row in q]
    outcomes: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for verdict, weight in _verdicts(
        strategy, Draft.chain(tokens, drawn), p, q, sparse=sparse, both_ends=True
    ):
        assert verdict.path == tuple(range(verdict.row))
        outcomes[len(verdict.path), verdict.token] += weight
    return dict(outcomes)


def _drafts(
    model: Model, mode: DrawMode, prefix: tuple[int, ...], gamma: int
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every chain of `gamma` tokens that a drafter of this mode may propose."""
    if gamma == 0:
        yield (), Fraction(1)
        return
    q = model(prefix)
    first = one_hot(len(q), q.index(max(q))) if mode is DrawMode.ARGMAX else q
    for token, weight in enumerate(first):
        if weight:
            for rest, w in _drafts(model, mode, (*prefix, token), gamma - 1):
                yield (token, *rest), weight * w


def one_round(
    strategy: AcceptanceStrategy,
    target: Model,
    drafter: Model,
    prefix: tuple[int, ...],
    gamma: int,
    *,
    mode: DrawMode | None = None,
    sparse: bool = False,
) -> Outcomes:
    """The law of the tokens that one round with `gamma` drafted tokens emits behind `prefix`."""
    mode = mode or strategy.draw_mode
    outcomes: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for tokens, weight in _drafts(drafter, mode, prefix, gamma):
        p = [target((*prefix, *tokens[:i])) for i in range(gamma + 1)]
        laws = [drafter((*prefix, *tokens[:i])) for i in range(gamma)]
        drawn = [distribution(q, sparse=sparse) for q in laws]
        if mode is DrawMode.ARGMAX:
            laws = [one_hot(len(q), t) for q, t in zip(laws, tokens, strict=True)]
        draft = Draft.chain(tokens, [None] * gamma if mode is DrawMode.ARGMAX else drawn)
        for verdict, w in _verdicts(strategy, draft, p, laws, sparse=sparse, both_ends=False):
            outcomes[(*(tokens[i] for i in verdict.path), verdict.token)] += weight * w
    assert sum(outcomes.values()) == 1
    return dict(outcomes)


def expected_accepted(outcomes: Outcomes) -> Fraction:
    """E[τ]: accepted draft tokens, the token behind them not counted."""
    return sum(((len(tokens) - 1) * w for tokens, w in outcomes.items()), Fraction(0))


def first_tokens(
    strategy: AcceptanceStrategy,
    target: Model,
    drafter: Model,
    n: int,
    gamma: Callable[[int], int],
    *,
    mode: DrawMode | None = None,
    sparse: bool = False,
) -> Outcomes:
    """The joint law of the first `n` tokens over as many rounds as it takes; round r drafts `gamma(r)`
    tokens."""
    done: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    running: Outcomes = {(): Fraction(1)}
    r = 0
    while running:
        following: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for prefix, weight in running.items():
            emitted = one_round(strategy, target, drafter, prefix, gamma(r), mode=mode, sparse=sparse)
            for tokens, w in emitted.items():
                text = (*prefix, *tokens)
                (done if len(text) >= n else following)[text[:n]] += weight * w
        running, r = dict(following), r + 1
    return dict(done)


def joint_law(model: Model, n: int) -> Outcomes:
    """The law of the first `n` tokens of plain decoding; what cannot happen is left out."""
    outcomes: Outcomes = {(): Fraction(1)}
    for _ in range(n):
        outcomes = {
            (*prefix, token): weight * w
            for prefix, weight in outcomes.items()
            for token, w in enumerate(model(prefix))
            if w
        }
    return outcomes
