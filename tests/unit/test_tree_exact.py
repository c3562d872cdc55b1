"""The rational rules for several candidates: the sheet's values, and that they keep the law."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
from scipy.optimize import linprog

from lucebox.research.exact_tree import (
    RULES,
    Law,
    Node,
    acceptance,
    drawn,
    drawn_trees,
    kseq_ratio,
    optimal_acceptance,
    traverse,
)
from tests.support.enumerate import Outcomes, joint_law
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

DISTINCT = {"specinfer": False, "kseq": False, "rrs": True, "traversal": True}
PAIRS = {"P3": (P3, Q3), "P4": (P4, Q4), "toy": (TOY_P, TOY_Q)}


@pytest.mark.parametrize(
    ("name", "laws", "k", "expected"),
    [
        ("specinfer", "P3", 2, "0.76"),
        ("specinfer", "P3", 3, "0.808"),
        ("specinfer", "P4", 2, "0.88"),
        ("specinfer", "P4", 3, "0.952"),
        ("rrs", "P3", 2, "283/350"),
        ("rrs", "P3", 3, "1"),
        ("rrs", "P4", 2, "0.925"),
        ("rrs", "P4", 3, "1"),
        ("traversal", "P3", 2, "283/350"),
        ("traversal", "P4", 2, "0.925"),
        *((name, laws, 1, "0.7") for name in RULES for laws in ("P3", "P4")),
    ],
)
def test_acceptance(name: str, laws: str, k: int, expected: str) -> None:
    assert acceptance(name, *PAIRS[laws], k) == Fraction(expected)


@pytest.mark.parametrize(
    ("laws", "k", "rho", "accepted"),
    [
        ("P3", 2, 1.456776, 0.791355),
        ("P3", 3, 1.792593, 0.858519),
        ("P4", 2, 1.324500, 0.894700),
        ("P4", 3, 1.439807, 0.963884),
    ],
)
def test_acceptance_of_kseq(laws: str, k: int, rho: float, accepted: float) -> None:
    found, beta = kseq_ratio(*PAIRS[laws], k)
    assert float(found) == pytest.approx(rho, abs=1e-6)
    assert float(1 - (1 - beta) ** k) == pytest.approx(accepted, abs=1e-6)
    assert float(acceptance("kseq", *PAIRS[laws], k)) == pytest.approx(accepted, abs=1e-6)


@pytest.mark.parametrize(
    ("laws", "k", "expected"),
    [("P3", 2, "0.86"), ("P3", 3, "0.988"), ("P4", 2, "0.94"), ("P4", 3, "0.992")],
)
def test_optimal_acceptance(laws: str, k: int, expected: str) -> None:
    p, q = PAIRS[laws]
    assert optimal_acceptance(p, q, k) == Fraction(expected)
    assert optimal_by_transport(p, q, k) == pytest.approx(float(Fraction(expected)), abs=1e-9)
    for name in ("specinfer", "kseq"):
        assert acceptance(name, p, q, k) <= Fraction(expected)


def optimal_by_transport(p: Law, q: Law, k: int) -> float:
    """The linear program itself: how much of each tuple of candidates may come out as one of them."""
    tuples = list(drawn(q, k, distinct=False))
    pairs = [(i, token) for i, (candidates, _) in enumerate(tuples) for token in sorted(set(candidates))]
    limits = [[float(i == j) for j, _ in pairs] for i in range(len(tuples))]
    limits += [[float(t == token) for _, t in pairs] for token in range(len(p))]
    bounds = [float(w) for _, w in tuples] + [float(w) for w in p]
    return -float(linprog([-1.0] * len(pairs), A_ub=limits, b_ub=bounds).fun)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("laws", PAIRS)
@pytest.mark.parametrize("name", RULES)
def test_rules_keep_the_law(name: str, laws: str, k: int) -> None:
    p, q = PAIRS[laws]
    emitted = [Fraction(0)] * len(p)
    for candidates, weight in drawn(q, k, distinct=DISTINCT[name]):
        outcomes = RULES[name](candidates, p, q)
        assert sum(outcomes.values()) == 1
        for (index, token), w in outcomes.items():
            assert index < 0 or candidates[index] == token or name == "traversal"
            emitted[token if name != "traversal" or index < 0 else candidates[index]] += weight * w
    assert tuple(emitted) == p


def test_laws_that_do_not_meet() -> None:
    p, q = (Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))
    for name in RULES:
        assert RULES[name]((1, 1) if not DISTINCT[name] else (1,), p, q) == {(-1, 0): 1}


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2,), (3, 1), (2, 2), (1, 2), (2, 1, 1)])
def test_traversal_keeps_the_joint_law(shape: tuple[int, ...], distinct: bool) -> None:
    """Over every tree that may be drafted, with what follows the emitted text taken from the target."""
    n_vocab = 2 if sum(shape) > 3 else 3
    target, drafter = markov(n_vocab, 2), markov(n_vocab, 5)
    n = len(shape) + 1
    found: Outcomes = defaultdict(Fraction)
    for tree, weight in drawn_trees(target, drafter, shape, distinct=distinct):
        for (path, token), w in traverse(target(()), tree).items():
            text = (*tokens_on(tree, path), token)
            for rest, x in joint_law(
                lambda prefix, text=text: target((*text, *prefix)), n - len(text)
            ).items():  # type: ignore[misc]
                found[(*text, *rest)] += weight * w * x
    assert found == joint_law(target, n)


@pytest.mark.parametrize(
    ("gamma", "expected"), [(1, "2/3"), (2, "11/9"), (3, "5/3"), (4, "166/81"), (5, "64/27")]
)
def test_traversal_of_a_chain_accepts_as_block(gamma: int, expected: str) -> None:
    p, q = constant(TOY_P), constant(TOY_Q)
    total = Fraction(0)
    for tree, weight in drawn_trees(p, q, (1,) * gamma, distinct=True):
        total += weight * sum(len(path) * w for (path, _), w in traverse(TOY_P, tree).items())
    assert total == Fraction(expected)


def tokens_on(tree: tuple[Node, ...], path: tuple[int, ...]) -> list[int]:
    tokens = []
    for i in path:
        tokens.append(tree[i].token)
        tree = tree[i].children
    return tokens
