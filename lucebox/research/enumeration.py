"""Exact expectations and output laws on small vocabularies: rational rules over every possible draft.

    rule = exact_chain.RULES["block"]
    expected_accepted(rule, p, q, gamma=3)
    total_variation(output_law(rule, target, drafter, 2, n_tokens=4), target_law(target, 4))

A model is a law that holds behind every prefix, or a function from a prefix to a law.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial

from lucebox.research import exact_tree
from lucebox.research.exact_chain import ONE, ZERO, ChainRule, Law, coupled
from lucebox.research.exact_tree import TreeRule

Tokens = tuple[int, ...]
Model = Law | Callable[[Tokens], Law]
Outcomes = dict[Tokens, Fraction]  # what was emitted, to its probability
Lengths = int | Callable[[int], int]  # tokens drafted in each round, or in round r


def law(*weights: str | int | Fraction) -> Law:
    """A normalised law of exact weights such as "0.5" or "1/3"."""
    exact = [Fraction(w) for w in weights]
    total = sum(exact, ZERO)
    return tuple(w / total for w in exact)


def round_law(
    rule: ChainRule, target: Model, drafter: Model, gamma: int, *, prefix: Tokens = (), argmax: bool = False
) -> Outcomes:
    """The law of the tokens that one round with a draft of `gamma` emits behind `prefix`.

    The draft is drawn from the drafter's laws; with `argmax` it is their likeliest tokens, and the rule is
    told that they are certain.
    """
    outcomes: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    p_of, q_of = _function(target), _function(drafter)
    for tokens, weight in _chains(q_of, prefix, gamma, argmax):
        behind = [(*prefix, *tokens[:i]) for i in range(gamma + 1)]
        q = [q_of(before) for before in behind[:-1]]
        if argmax:
            q = [_one_hot(len(row), token) for row, token in zip(q, tokens, strict=True)]
        for (n, token), w in rule(tokens, [p_of(before) for before in behind], q).items():
            outcomes[(*tokens[:n], token)] += weight * w
    return dict(outcomes)


def tree_round_law(
    rule: TreeRule,
    target: Model,
    drafter: Model,
    shape: Sequence[int],
    *,
    prefix: Tokens = (),
    distinct: bool = False,
) -> Outcomes:
    """The law of the tokens that one round emits whose draft is a tree: every node of depth d has `shape[d]`
    children, drawn independently or, if `distinct`, without replacement, and judged row by row."""
    p_of, q_of = _function(target), _function(drafter)
    if not shape:
        return {(token,): w for token, w in enumerate(p_of(prefix)) if w}
    outcomes: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    p, q = p_of(prefix), q_of(prefix)
    for candidates, weight in exact_tree.drawn(q, shape[0], distinct=distinct):
        for (accepted, token), w in rule(candidates, p, q).items():
            if accepted < 0:
                outcomes[(token,)] += weight * w
                continue
            below = tree_round_law(
                rule, target, drafter, shape[1:], prefix=(*prefix, token), distinct=distinct
            )
            for rest, x in below.items():
                outcomes[(token, *rest)] += weight * w * x
    return dict(outcomes)


def expected_accepted(
    rule: ChainRule, target: Model, drafter: Model, gamma: int, *, argmax: bool = False
) -> Fraction:
    """E[τ]: how many of `gamma` drafted tokens are accepted; the token behind them does not count."""
    return expected_length(round_law(rule, target, drafter, gamma, argmax=argmax)) - 1


def expected_length(outcomes: Mapping[Tokens, Fraction]) -> Fraction:
    """E of the number of tokens."""
    return sum((len(tokens) * w for tokens, w in outcomes.items()), ZERO)


def gumbel_expected_accepted(target: Model, drafter: Model, gamma: int) -> Fraction:
    """E[τ] under shared noise (Daliri et al. 2408.07978), which no rule given the chain describes."""
    p_of, q_of = _function(target), _function(drafter)

    def expected(prefix: Tokens, n_left: int) -> Fraction:
        if n_left == 0:
            return ZERO
        p, q = p_of(prefix), q_of(prefix)
        both = [x for x in range(len(p)) if p[x] and q[x]]
        return sum((coupled(p, q, x) * (1 + expected((*prefix, x), n_left - 1)) for x in both), ZERO)

    return expected((), gamma)


def most_accepted(target: Model, drafter: Model, gamma: int) -> Fraction:
    """What no lossless rule's E[τ] exceeds, were it to know the joint laws of both models: the sum, over i
    and prefixes of length i, of min(target, drafter)."""
    p_of, q_of = _function(target), _function(drafter)
    total = ZERO
    laws: dict[Tokens, tuple[Fraction, Fraction]] = {(): (ONE, ONE)}
    for _ in range(gamma):
        laws = {
            (*prefix, x): (a * p, b * q)
            for prefix, (a, b) in laws.items()
            for x, (p, q) in enumerate(zip(p_of(prefix), q_of(prefix), strict=True))
            if p and q
        }
        total += sum((min(pair) for pair in laws.values()), ZERO)
    return total


def output_law(
    rule: ChainRule,
    target: Model,
    drafter: Model,
    gamma: Lengths,
    n_tokens: int,
    *,
    argmax: bool = False,
) -> Outcomes:
    """The joint law of the first `n_tokens` tokens, over as many rounds as they take."""
    lengths = gamma if callable(gamma) else lambda r: gamma
    return _rounds(
        lambda prefix, r: round_law(rule, target, drafter, lengths(r), prefix=prefix, argmax=argmax), n_tokens
    )


def tree_output_law(
    rule: TreeRule,
    target: Model,
    drafter: Model,
    shape: Sequence[int],
    n_tokens: int,
    *,
    distinct: bool = False,
) -> Outcomes:
    """As `output_law`, for trees: see `tree_round_law`."""
    one_round = partial(tree_round_law, rule, target, drafter, shape, distinct=distinct)
    return _rounds(lambda prefix, r: one_round(prefix=prefix), n_tokens)


def target_law(target: Model, n_tokens: int) -> Outcomes:
    """The joint law of the first `n_tokens` tokens of plain decoding."""
    p_of = _function(target)
    return _rounds(lambda prefix, r: {(token,): w for token, w in enumerate(p_of(prefix)) if w}, n_tokens)


def total_variation(a: Mapping[Tokens, Fraction], b: Mapping[Tokens, Fraction]) -> Fraction:
    """Half the sum of the differences: the largest difference in the probability of any event."""
    return sum((abs(a.get(x, ZERO) - b.get(x, ZERO)) for x in {*a, *b}), ZERO) / 2


def _rounds(one_round: Callable[[Tokens, int], Outcomes], n_tokens: int) -> Outcomes:
    """The law of the first `n_tokens` tokens of rounds one after the other."""
    done: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    running: Outcomes = {(): ONE}
    r = 0
    while running:
        following: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
        for prefix, weight in running.items():
            for tokens, w in one_round(prefix, r).items():
                text = (*prefix, *tokens)
                (done if len(text) >= n_tokens else following)[text[:n_tokens]] += weight * w
        running, r = dict(following), r + 1
    return dict(done)


def _chains(
    q_of: Callable[[Tokens], Law], prefix: Tokens, gamma: int, argmax: bool
) -> Iterator[tuple[Tokens, Fraction]]:
    """Every chain of `gamma` tokens that may be drafted behind `prefix`, and how likely it is."""
    if gamma == 0:
        yield (), ONE
        return
    q = q_of(prefix)
    for token, weight in enumerate(_one_hot(len(q), q.index(max(q))) if argmax else q):
        if weight:
            for rest, w in _chains(q_of, (*prefix, token), gamma - 1, argmax):
                yield (token, *rest), weight * w


def _one_hot(n: int, token: int) -> Law:
    return tuple(Fraction(int(i == token)) for i in range(n))


def _function(model: Model) -> Callable[[Tokens], Law]:
    return model if callable(model) else lambda prefix: model
