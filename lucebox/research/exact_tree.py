"""The rules for several candidates in rational numbers: what each emits, and with which probability.

A tree rule judges the candidates behind one row: `rule(candidates, p, q)` maps (index of the accepted one or
-1, emitted token) to its probability, where p is the target's law and q the one the candidates come from, as
the rule's strategy has them drawn. Written from the papers, and apart from the strategies that it tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from types import MappingProxyType

from lucebox.research.exact_chain import ONE, ZERO, Law

Emitted = dict[tuple[int, int], Fraction]
TreeRule = Callable[[Sequence[int], Law, Law], Emitted]

ROOT_PRECISION = Fraction(1, 2**60)


def specinfer(candidates: Sequence[int], p: Law, q: Law) -> Emitted:
    """Independent candidates, one by one (Miao et al. 2305.09781)."""
    return _one_by_one(candidates, p, [q] * len(candidates))


def rrs(candidates: Sequence[int], p: Law, q: Law) -> Emitted:
    """Candidates that differ, one by one (Jeon et al. 2402.14160)."""
    return _one_by_one(candidates, p, _without_siblings(candidates, q))


def kseq(candidates: Sequence[int], p: Law, q: Law) -> Emitted:
    """Independent candidates, each by min(1, p/(rho q)) (SpecTr, 2310.15141)."""
    k = len(candidates)
    emitted: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    if k == 0:
        return {(-1, token): w for token, w in enumerate(p) if w}
    rho, beta = kseq_ratio(p, q, k)
    reached = ONE
    for i, token in enumerate(candidates):
        accepted = min(ONE, p[token] / (rho * q[token]))
        emitted[i, token] += reached * accepted
        reached *= 1 - accepted
    share = (1 - (1 - beta) ** k) / beta if beta else ZERO
    left = _normalised(tuple(a - share * min(b, a / rho) for a, b in zip(p, q, strict=True)), p)
    for token, w in enumerate(left):
        emitted[-1, token] += reached * w
    return {key: w for key, w in emitted.items() if w}


def kseq_ratio(p: Law, q: Law, k: int) -> tuple[Fraction, Fraction]:
    """(rho, beta): the root of 1 - (1 - beta)^k = rho beta, from above to within 2^-60, and beta there."""

    def beta(rho: Fraction) -> Fraction:
        return sum((min(b, a / rho) for a, b in zip(p, q, strict=True)), ZERO)

    low, high = ONE, Fraction(k)
    while high - low > ROOT_PRECISION:
        middle = (low + high) / 2
        b = beta(middle)
        low, high = (middle, high) if 1 - (1 - b) ** k > middle * b else (low, middle)
    return high, beta(high)


def traversal(candidates: Sequence[int], p: Law, q: Law) -> Emitted:
    """Leaves behind the root, drawn without replacement (Weng et al. 2505.12398): as `rrs`. What this
    strategy is for are deeper trees, which it does not judge row by row: see `traverse`."""
    laws = _without_siblings(candidates, q)
    nodes = tuple(Node(token, law, p) for token, law in zip(candidates, laws, strict=True))
    emitted: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for (path, token), w in traverse(p, nodes).items():
        emitted[(path[0], candidates[path[0]]) if path else (-1, token)] += w
    return {key: w for key, w in emitted.items() if w}


RULES: Mapping[str, TreeRule] = MappingProxyType(
    {"specinfer": specinfer, "rrs": rrs, "kseq": kseq, "traversal": traversal}
)


@dataclass(frozen=True, slots=True)
class Node:
    """A drafted token, drawn from `q`; `p` is the target's law behind it."""

    token: int
    q: Law
    p: Law
    children: tuple[Node, ...] = ()


def traverse(p: Law, children: Sequence[Node]) -> dict[tuple[tuple[int, ...], int], Fraction]:
    """Traversal of a whole tree under a root of law `p`: (path, emitted token) to probability, where a path
    numbers the child taken at each depth."""
    stopped, weight, left = _traverse(ONE, p, children)
    assert weight == 1
    fallen = 1 - sum(stopped.values(), ZERO)
    return stopped | {((), token): fallen * w for token, w in enumerate(left) if fallen * w}


def _traverse(
    weight: Fraction, p: Law, children: Sequence[Node]
) -> tuple[dict[tuple[tuple[int, ...], int], Fraction], Fraction, Law]:
    """What stops below a node of weight a and law p, and the a and p that are left if nothing does."""
    stopped: dict[tuple[tuple[int, ...], int], Fraction] = {}
    reached = ONE
    for i, child in enumerate(children):
        a = min(ONE, weight * p[child.token] / child.q[child.token])
        below, a, left = _traverse(a, child.p, child.children)
        fallen = 1 - sum(below.values(), ZERO)
        for (path, token), w in below.items():
            stopped[(i, *path), token] = reached * w
        for token, w in enumerate(left):
            if a * w:
                stopped[(i,), token] = stopped.get(((i,), token), ZERO) + reached * fallen * a * w
        reached *= fallen * (1 - a)
        excess = tuple(max(weight * x - y, ZERO) for x, y in zip(p, child.q, strict=True))
        mass = sum(excess, ZERO)
        p = _normalised(excess, p)
        weight = mass / (mass + 1 - weight) if mass + 1 - weight else ONE
    return stopped, weight, p


def acceptance(name: str, p: Law, q: Law, k: int) -> Fraction:
    """The probability that one of `k` candidates, drawn as rule `name` has it, is accepted."""
    total = ZERO
    for candidates, w in drawn(q, k, distinct=name in ("rrs", "traversal")):
        total += w * sum((x for (i, _), x in RULES[name](candidates, p, q).items() if i >= 0), ZERO)
    return total


def drawn(q: Law, k: int, *, distinct: bool) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every way to draw `k` candidates from q, independently or without replacement (fewer where q runs
    out)."""
    if k == 0 or not any(q):
        yield (), ONE
        return
    for token, w in enumerate(q):
        if w:
            rest_of_q = _without(q, token) if distinct else q
            for rest, x in drawn(rest_of_q, k - 1, distinct=distinct):
                yield (token, *rest), w * x


def drawn_trees(
    target: Callable[[tuple[int, ...]], Law],
    drafter: Callable[[tuple[int, ...]], Law],
    shape: Sequence[int],
    *,
    distinct: bool,
    prefix: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[Node, ...], Fraction]]:
    """Every tree that may be drafted behind `prefix`, whose nodes of depth d have `shape[d]` children drawn
    as in `drawn`, for `traverse`."""
    if not shape:
        yield (), ONE
        return
    q = drafter(prefix)
    for tokens, weight in drawn(q, shape[0], distinct=distinct):
        laws = _without_siblings(tokens, q) if distinct else [q] * len(tokens)
        texts = [(*prefix, token) for token in tokens]
        below = (
            list(drawn_trees(target, drafter, shape[1:], distinct=distinct, prefix=text)) for text in texts
        )
        for choice in product(*below):
            nodes = zip(tokens, laws, texts, choice, strict=True)
            tree = tuple(
                Node(token, law, target(text), children) for token, law, text, (children, _) in nodes
            )
            yield tree, weight * math.prod((w for _, w in choice), start=ONE)


def optimal_acceptance(p: Law, q: Law, k: int) -> Fraction:
    """The most that any rule accepts of `k` independent candidates: optimal transport, by its minimum cut
    min over sets S of tokens of p(S) + 1 - q(S)^k. Exponential in the vocabulary."""
    tokens = range(len(p))
    cuts = (
        sum((p[t] for t in chosen), ZERO) + 1 - sum((q[t] for t in chosen), ZERO) ** k
        for size in range(len(p) + 1)
        for chosen in combinations(tokens, size)
    )
    return min(cuts)


def _one_by_one(candidates: Sequence[int], p: Law, laws: Sequence[Law]) -> Emitted:
    emitted: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    reached = ONE
    for i, (token, q) in enumerate(zip(candidates, laws, strict=True)):
        accepted = min(ONE, p[token] / q[token])
        emitted[i, token] += reached * accepted
        reached *= 1 - accepted
        p = _normalised(tuple(a - b for a, b in zip(p, q, strict=True)), p)
    for token, w in enumerate(p):
        emitted[-1, token] += reached * w
    return {key: w for key, w in emitted.items() if w}


def _without_siblings(candidates: Sequence[int], q: Law) -> list[Law]:
    """The law of each candidate, given those before it."""
    laws: list[Law] = []
    for token in candidates:
        laws.append(q)
        q = _without(q, token)
    return laws


def _without(q: Law, token: int) -> Law:
    return _normalised(tuple(w * (i != token) for i, w in enumerate(q)), (ZERO,) * len(q))


def _normalised(weights: Sequence[Fraction], otherwise: Law) -> Law:
    """The positive part, normalised; `otherwise` where there is none."""
    left = [max(w, ZERO) for w in weights]
    total = sum(left, ZERO)
    return tuple(w / total for w in left) if total else otherwise
