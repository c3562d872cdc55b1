"""Acceptance rules for chains in rational arithmetic, as their papers state them.

A rule answers with the law of (accepted tokens, emitted token) for given drafted tokens. p[i] is the target's
law behind i of them, q[i] the law that token i was drawn from, one-hot where it was not drawn at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

Law = tuple[Fraction, ...]
Outcomes = dict[tuple[int, int], Fraction]

ZERO, ONE = Fraction(0), Fraction(1)
N_HALVINGS = 60


class ChainRule(Protocol):
    """The law of (n_accepted, emitted token), given the drafted chain. len(p) == len(q) + 1."""

    def __call__(self, tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes: ...


def greedy(tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes:
    """Accepts the likeliest token, the lowest id among ties, and nothing else."""
    best = [law.index(max(law)) for law in p]
    n = _n_leading([token == x for token, x in zip(tokens, best, strict=False)])
    return {(n, best[n]): ONE}


def match(tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes:
    """Draws from p, and accepts the token drawn."""
    chances = [p[i][token] for i, token in enumerate(tokens)]
    corrections = [_without(p[i], token) for i, token in enumerate(tokens)]
    return _token_by_token(chances, [*corrections, p[-1]])


def token(tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes:
    """min(1, p/q), then norm(max(p - q, 0))."""
    chances = [_ratio(p[i][x], q[i][x]) for i, x in enumerate(tokens)]
    return _token_by_token(chances, [*map(residual, p, q), p[-1]])


def block(tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes:
    """The longest prefix that one of the independent draws allows (Sun et al. 2025)."""
    a, allowed = block_thresholds(tokens, p, q)
    outcomes: Outcomes = {}
    left = ONE  # the probability that no longer prefix was allowed
    for n in range(len(tokens), -1, -1):
        weight = left * (allowed[n - 1] if n else ONE)
        left -= weight
        law = p[n] if n == len(tokens) else residual(p[n], q[n], a[n])
        _add(outcomes, n, law, weight)
    return outcomes


def block_thresholds(
    tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]
) -> tuple[list[Fraction], list[Fraction]]:
    """a(0), …, a(n), and the probabilities h(1), …, h(n) that a prefix of that length is allowed."""
    a = [ONE]
    for i, x in enumerate(tokens):
        a.append(min(ONE, a[-1] * p[i][x] / q[i][x]))
    allowed = []
    for i in range(1, len(tokens)):
        excess = sum((max(a[i] * x - y, ZERO) for x, y in zip(p[i], q[i], strict=True)), ZERO)
        rest = excess + 1 - a[i]
        allowed.append(excess / rest if rest else ONE)
    return a, [*allowed, a[-1]][: len(tokens)]


def typical(
    tokens: Sequence[int],
    p: Sequence[Law],
    q: Sequence[Law],
    *,
    epsilon: Fraction = Fraction("0.09"),
    delta: Fraction = Fraction("0.3"),
) -> Outcomes:
    """p(x) > min(epsilon, delta * exp(-H(p))), then a draw from p. The entropy is a float."""
    chances = [
        Fraction(p[i][x] > min(epsilon, delta * Fraction(math.exp(-entropy(p[i])))))
        for i, x in enumerate(tokens)
    ]
    return _token_by_token(chances, p)


def lenient(
    tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law], *, leniency: Fraction = Fraction("0.5")
) -> Outcomes:
    """min(1, p/(l q)), then norm(max(p - q, 0))."""
    chances = [_ratio(p[i][x], leniency * q[i][x]) for i, x in enumerate(tokens)]
    return _token_by_token(chances, [*map(residual, p, q), p[-1]])


def mentored(
    tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law], *, divergence: float = 0.05
) -> Outcomes:
    """`token` towards the law nearest to q with KL(p || pi) <= `divergence`: l solves it in floats."""
    laws = [mentored_law(x, y, mentored_leniency(x, y, divergence)) for x, y in zip(p, q, strict=False)]
    chances = [_ratio(laws[i][x], q[i][x]) for i, x in enumerate(tokens)]
    return _token_by_token(chances, [*map(residual, laws, q), p[-1]])


def fuzzy(
    tokens: Sequence[int],
    p: Sequence[Law],
    q: Sequence[Law],
    *,
    divergence: str = "js",
    threshold: Fraction = Fraction("0.1"),
) -> Outcomes:
    """Accepts where Div(p, q) <= `threshold`, then draws from p. kl and js are floats, tv is exact."""
    measures: dict[str, Callable[[Law, Law], Fraction | float]]
    measures = {"js": jensen_shannon, "kl": kullback_leibler, "tv": total_variation}
    measure = measures[divergence]
    return _token_by_token([Fraction(measure(p[i], q[i]) <= threshold) for i in range(len(tokens))], p)


def gumbel_acceptance(p: Law, q: Law) -> Fraction:
    """The probability that two argmaxes under one Gumbel noise agree (Daliri, Musco & Suresh 2024)."""
    return sum((coupled(p, q, x) for x in range(len(p))), ZERO)


def coupled(p: Law, q: Law, token: int) -> Fraction:
    """The probability that both argmaxes are `token`: 1 / sum over y of max(p_y/p_x, q_y/q_x)."""
    if not p[token] or not q[token]:
        return ZERO
    return 1 / sum((max(a / p[token], b / q[token]) for a, b in zip(p, q, strict=True)), ZERO)


def residual(p: Law, q: Law, scale: Fraction = ONE) -> Law:
    """norm(max(scale * p - q, 0)); p where nothing is left."""
    left = [max(scale * a - b, ZERO) for a, b in zip(p, q, strict=True)]
    return tuple(x / sum(left) for x in left) if any(left) else p


def mentored_law(p: Law, q: Law, leniency: Fraction) -> Law:
    """pi of Tran-Thien 2023 for a given l: p/l where q > p/l, p/b where q < p/b, else q."""
    freed = sum((max(b - a / leniency, ZERO) for a, b in zip(p, q, strict=True)), ZERO)
    ranked = sorted((x for x in range(len(p)) if p[x]), key=lambda x: q[x] / p[x])
    p_raised, q_raised, share = ZERO, ZERO, ZERO  # share = 1/b: the level to which freed mass raises q/p
    for x in ranked:
        if p_raised and p_raised * q[x] / p[x] - q_raised >= freed:
            break
        p_raised, q_raised = p_raised + p[x], q_raised + q[x]
        share = (freed + q_raised) / p_raised
    return tuple(max(min(b, a / leniency), a * share) for a, b in zip(p, q, strict=True))


@lru_cache(maxsize=1024)
def mentored_leniency(p: Law, q: Law, bound: float) -> Fraction:
    """The least l that keeps KL(p || pi) within `bound`, to 60 binary digits, from above."""
    low, high = ZERO, ONE
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        if kullback_leibler(p, mentored_law(p, q, middle)) <= bound:
            high = middle
        else:
            low = middle
    return high


def entropy(p: Law) -> float:
    """In nats."""
    return -sum(float(x) * math.log(x) for x in p if x)


def kullback_leibler(p: Law, q: Law) -> float:
    """KL(p || q) in nats; infinite where q lacks what p has."""
    parts = [(a, b) for a, b in zip(p, q, strict=True) if a]
    return math.inf if any(not b for _, b in parts) else sum(float(a) * math.log(a / b) for a, b in parts)


def jensen_shannon(p: Law, q: Law) -> float:
    """In nats, at most log 2."""
    middle = tuple((a + b) / 2 for a, b in zip(p, q, strict=True))
    return (kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2


def total_variation(p: Law, q: Law) -> Fraction:
    """Half the sum of |p - q|."""
    return sum((abs(a - b) for a, b in zip(p, q, strict=True)), ZERO) / 2


def _token_by_token(chances: Sequence[Fraction], laws: Sequence[Law]) -> Outcomes:
    """Token i stands with probability chances[i]; a draw from laws[i] replaces the first that does not."""
    outcomes: Outcomes = {}
    left = ONE
    for n, law in enumerate(laws):
        chance = chances[n] if n < len(chances) else ZERO
        _add(outcomes, n, law, left * (1 - chance))
        left *= chance
    return outcomes


def _add(outcomes: Outcomes, n: int, law: Law, weight: Fraction) -> None:
    for x, probability in enumerate(law):
        if weight * probability:
            outcomes[n, x] = outcomes.get((n, x), ZERO) + weight * probability


def _ratio(p: Fraction, q: Fraction) -> Fraction:
    """min(1, p/q); 0 where p is, whatever q is."""
    return min(ONE, p / q) if q else Fraction(p > 0)


def _without(p: Law, token: int) -> Law:
    """p given that it is not `token`; p itself where it can be nothing else."""
    left = [ZERO if x == token else weight for x, weight in enumerate(p)]
    return tuple(x / sum(left) for x in left) if any(left) else p


def _n_leading(stands: Sequence[bool]) -> int:
    return next((i for i, stood in enumerate(stands) if not stood), len(stands))


RULES: Mapping[str, ChainRule] = {
    "greedy": greedy,
    "match": match,
    "token": token,
    "typical": typical,
    "block": block,
    "lenient": lenient,
    "mentored": mentored,
    "fuzzy": fuzzy,
}
