"""`token`: exact acceptance and exact output laws, by enumeration of the production code, and its traps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import (
    Law,
    distribution,
    expected_accepted,
    first_tokens,
    joint_law,
    law,
    one_round,
)
from tests.support.laws import WatchedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

TOKEN = acceptance.create("token")


def test_flags() -> None:
    assert (TOKEN.lossless, TOKEN.needs_q, TOKEN.supports_trees) == (True, True, False)
    assert TOKEN.draw_mode is DrawMode.SAMPLE


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(1, "2/3"), (2, "10/9"), (3, "38/27"), (4, "130/81"), (5, "422/243"), (6, "1330/729")],
)
def test_expected_acceptance_on_the_toy(gamma: int, expected: str) -> None:
    outcomes = one_round(TOKEN, constant(TOY_P), constant(TOY_Q), (), gamma)
    assert expected_accepted(outcomes) == Fraction(expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("p", "q", "gamma", "expected"),
    [
        (P3, Q3, 1, "0.7"),
        (P3, Q3, 2, "1.19"),
        (P3, Q3, 3, "1.533"),
        (P3, Q3, 4, "1.7731"),
        (P4, Q4, 1, "0.7"),
    ],
)
def test_expected_acceptance(p: Law, q: Law, gamma: int, expected: str, sparse: bool) -> None:
    outcomes = one_round(TOKEN, constant(p), constant(q), (), gamma, sparse=sparse)
    assert expected_accepted(outcomes) == Fraction(expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
@pytest.mark.parametrize("gammas", [(1,), (2,), (3,), (4,), (2, 0, 1), (1, 3)])
def test_joint_law_is_the_target_s(gammas: tuple[int, ...], mode: DrawMode, sparse: bool) -> None:
    """Four tokens, so two rounds or more, with laws that depend on the prefix and differ in support."""
    p, q = markov(3, 2), markov(3, 5)
    found = first_tokens(TOKEN, p, q, 4, lambda r: gammas[r % len(gammas)], mode=mode, sparse=sparse)
    assert found == joint_law(p, 4)


@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
def test_joint_law_of_a_larger_vocabulary(mode: DrawMode) -> None:
    p, q = markov(5, 3), markov(5, 4)
    assert first_tokens(TOKEN, p, q, 3, lambda r: 2, mode=mode) == joint_law(p, 3)


def test_an_argmax_draft_needs_a_one_hot_q() -> None:
    """The trap: judged by the softmax it did not come from, an argmax draft makes its token too likely."""
    n = 4000
    frequency = {}
    for name, q in {"one-hot": None, "softmax": distribution(Q3)}.items():
        draft, rows = Draft.chain([1], [q]), [distribution(P3)] * 2
        verdicts = [TOKEN.verify(draft, rows, RoundRandom(seed, 0)) for seed in range(n)]
        frequency[name] = sum(bool(v.path) or v.token == 1 for v in verdicts) / n
    deviation = 4 * (0.3 * 0.7 / n) ** 0.5
    assert abs(frequency["one-hot"] - 0.3) < deviation
    assert frequency["softmax"] > 0.3 + 2 * deviation


def test_filters_that_differ_between_the_sides() -> None:
    """q after its own top-k: tokens that q cannot draw still come out with their full probability."""
    p, q = constant(law("0.4", "0.3", "0.2", "0.1")), constant(law("0.7", 0, 0, "0.3"))
    for sparse in (False, True):
        assert first_tokens(TOKEN, p, q, 3, lambda r: 2, sparse=sparse) == joint_law(p, 3)


def test_disjoint_supports_reject_always() -> None:
    p, q = constant(law(0, "0.5", "0.5")), constant(law(1, 0, 0))
    outcomes = one_round(TOKEN, p, q, (), 2)
    assert outcomes == {(1,): Fraction(1, 2), (2,): Fraction(1, 2)}


def test_equal_laws_accept_always() -> None:
    outcomes = one_round(TOKEN, constant(P3), constant(P3), (), 3)
    assert expected_accepted(outcomes) == 3


def test_temperature_zero_is_greedy() -> None:
    a, b = Distribution.one_hot(9, 4), Distribution.one_hot(9, 5)
    for seed in range(20):
        random = RoundRandom(seed, 3)
        assert TOKEN.verify(Draft.chain([4, 5], [a, b]), [a, b, a], random) == Verdict((0, 1), 4, 2)
        assert TOKEN.verify(Draft.chain([4, 4], [a, a]), [a, b, a], random) == Verdict((0,), 5, 1)
        assert TOKEN.verify(Draft.chain([5], [None]), [a, b], random) == Verdict((), 4, 0)


def test_rows_are_asked_for_only_as_far_as_they_are_needed() -> None:
    rows = WatchedRows([Distribution.one_hot(9, t) for t in (1, 2, 3, 4)])
    verdict = TOKEN.verify(Draft.chain([1, 7, 3], [None] * 3), rows, RoundRandom(0, 0))
    assert verdict == Verdict((0,), 2, 1)
    assert rows.asked == {0, 1}


def test_trees_are_refused() -> None:
    tree = Draft(np.array([1, 2], np.int32), np.array([0, 0], np.int32), [None, None])
    with pytest.raises(AssertionError):
        TOKEN.verify(tree, [distribution(P3)] * 3, RoundRandom(0, 0))
