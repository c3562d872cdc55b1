"""`traversal`: what it accepts beyond the strategies that walk down."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import Law, Model, distribution
from tests.support.enumerate_trees import expected_accepted
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

TRAVERSAL, RRS, BLOCK = (acceptance.create(name) for name in ("traversal", "rrs", "block"))


@pytest.mark.parametrize(
    ("p", "q", "gamma", "expected"),
    [
        (TOY_P, TOY_Q, 2, "11/9"),
        (TOY_P, TOY_Q, 3, "5/3"),
        (TOY_P, TOY_Q, 4, "166/81"),
        (P3, Q3, 2, "1.25"),
        (P3, Q3, 3, "1.72"),
        (P4, Q4, 2, "1.22"),
        (P4, Q4, 3, "1.623"),
    ],
)
def test_a_chain_accepts_as_block(p: Law, q: Law, gamma: int, expected: str) -> None:
    assert expected_accepted(TRAVERSAL, constant(p), constant(q), (1,) * gamma) == Fraction(expected)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize(
    ("p", "q"), [(constant(P3), constant(Q3)), (markov(2, 2), markov(2, 5))], ids=["P3", "markov"]
)
def test_accepts_no_less_than_rrs(p: Model, q: Model, shape: tuple[int, ...]) -> None:
    ours, theirs = (expected_accepted(strategy, p, q, shape) for strategy in (TRAVERSAL, RRS))
    assert ours >= theirs
    if p(()) == P3:
        assert ours > theirs


def test_a_long_run_of_unlikely_tokens_does_not_underflow() -> None:
    """Weights are kept as logarithms: e^-1000 is 0 as a float, and a likely token may follow."""
    n, tiny = 12, np.float32(1e-38)
    unlikely = Distribution(2, np.array([tiny, 1.0], np.float32))
    sure = Distribution(2, np.array([1.0, 0.0], np.float32))
    likely = Distribution(2, np.array([1.0, tiny], np.float32))
    draft = Draft.chain([0] * (2 * n), [sure] * n + [unlikely] * n)
    rows = [unlikely] * n + [likely] * (n + 1)
    for seed in range(5):
        random = RoundRandom(seed, 0)
        assert TRAVERSAL.verify(draft, rows, random) == BLOCK.verify(draft, rows, random)


def test_what_falls_leaves_its_siblings_more() -> None:
    """Behind a fallen sibling, p is what the sibling left of it: here all of it goes to the second."""
    p, q = distribution(P3), distribution(Q3)
    tree = Draft(np.array([1, 0], np.int32), np.array([0, 0], np.int32), [q, q])
    for seed in range(200):
        verdict = TRAVERSAL.verify(tree, [p, p, p], RoundRandom(seed, 0))
        assert verdict.path in ((0,), (1,))  # max(p - q, 0) is all on token 0
