"""`block`: exact acceptance and output laws, by enumeration of the production code, and its traps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import Purpose, RoundRandom
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

BLOCK = acceptance.create("block")
LAST = float(np.nextafter(1.0, 0.0))


@dataclass
class Fixed:
    """Random numbers of our choosing; what is not given is 0.5."""

    given: dict[tuple[int, Purpose], float]
    asked: list[tuple[int, Purpose]] = field(default_factory=list)

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        self.asked.append((offset, purpose))
        return self.given.get((offset, purpose), 0.5)


def verify(
    draft: Draft, rows: list[Distribution], given: dict[tuple[int, Purpose], float] | None = None
) -> Verdict:
    return BLOCK.verify(draft, rows, Fixed(given or {}))  # type: ignore[arg-type]


def test_flags() -> None:
    assert (BLOCK.lossless, BLOCK.needs_q, BLOCK.supports_trees) == (True, True, False)
    assert BLOCK.draw_mode is DrawMode.SAMPLE


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(1, "2/3"), (2, "11/9"), (3, "5/3"), (4, "166/81"), (5, "64/27"), (6, "1933/729")],
)
def test_expected_acceptance_on_the_toy(gamma: int, expected: str) -> None:
    outcomes = one_round(BLOCK, constant(TOY_P), constant(TOY_Q), (), gamma)
    assert expected_accepted(outcomes) == Fraction(expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("p", "q", "gamma", "expected"),
    [
        (P3, Q3, 1, "0.7"),
        (P3, Q3, 2, "1.25"),
        (P3, Q3, 3, "1.72"),
        (P3, Q3, 4, "2.1141"),
        (P4, Q4, 2, "1.22"),
        (P4, Q4, 3, "1.623"),
    ],
)
def test_expected_acceptance(p: Law, q: Law, gamma: int, expected: str, sparse: bool) -> None:
    outcomes = one_round(BLOCK, constant(p), constant(q), (), gamma, sparse=sparse)
    assert expected_accepted(outcomes) == Fraction(expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
@pytest.mark.parametrize("gammas", [(1,), (2,), (3,), (4,), (2, 0, 1), (1, 3)])
def test_joint_law_is_the_target_s(gammas: tuple[int, ...], mode: DrawMode, sparse: bool) -> None:
    """Four tokens, so two rounds or more, with laws that depend on the prefix and differ in support."""
    p, q = markov(3, 2), markov(3, 5)
    found = first_tokens(BLOCK, p, q, 4, lambda r: gammas[r % len(gammas)], mode=mode, sparse=sparse)
    assert found == joint_law(p, 4)


@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
def test_joint_law_of_a_larger_vocabulary(mode: DrawMode) -> None:
    p, q = markov(5, 3), markov(5, 4)
    assert first_tokens(BLOCK, p, q, 3, lambda r: 2, mode=mode) == joint_law(p, 3)


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_never_less_than_token(gamma: int) -> None:
    token = acceptance.create("token")
    for p, q in [(markov(3, 1), markov(3, 3)), (markov(4, 2), markov(4, 5))]:
        block = expected_accepted(one_round(BLOCK, p, q, (), gamma))
        assert block >= expected_accepted(one_round(token, p, q, (), gamma))


def test_a_longer_prefix_may_stand_where_a_shorter_one_fails() -> None:
    """The trap: to stop at the first failure. a(1) = 0.4, and p/q = 2.5 brings a(2) back to 1."""
    p, q = distribution(law("0.2", "0.8")), distribution(law("0.5", "0.5"))
    unlikely, likely = distribution(law("0.1", "0.9")), distribution(law("0.25", "0.75"))
    draft = Draft.chain([0, 1], [q, distribution(law("0.64", "0.36"))])
    rows = [p, unlikely, likely]
    assert verify(draft, rows, {(0, Purpose.ACCEPT): LAST, (1, Purpose.ACCEPT): 0.9}).path == (0, 1)


def test_a_prefix_that_is_not_allowed_does_not_stand_at_u_0() -> None:
    """a(1) = 1/2, and a(1) * p lies below q everywhere: h(1) = 0. To stand there would leave no residual."""
    p, q = distribution(law("0.25", "0.75")), distribution(law("0.5", "0.5"))
    half, late = distribution(law("0.5", "0.5")), distribution(law("0.25", "0.75"))
    given = {(0, Purpose.ACCEPT): 0.0, (1, Purpose.ACCEPT): LAST}
    assert verify(Draft.chain([0, 1], [q, late]), [p, half, half], given) == Verdict((), 1, 0)


def test_every_prefix_has_its_own_draw() -> None:
    p, q = distribution(P3), distribution(law("0.1", "0.2", "0.7"))
    random = Fixed({(i, Purpose.ACCEPT): LAST for i in range(3)})
    verdict = BLOCK.verify(Draft.chain([2, 2, 2], [q] * 3), [p] * 4, random)  # type: ignore[arg-type]
    assert verdict.path == ()
    assert sorted(random.asked) == sorted([(0, Purpose.RESIDUAL), *((i, Purpose.ACCEPT) for i in range(3))])


def test_a_token_of_probability_zero_never_stands() -> None:
    """u == 0 is a random number like any other."""
    p, q = distribution(law(0, "0.5", "0.5")), distribution(law("0.5", "0.5", 0))
    zeros = {(i, Purpose.ACCEPT): 0.0 for i in range(3)}
    for tokens in [(0,), (0, 1), (1, 0), (1, 0, 1)]:
        verdict = verify(Draft.chain(tokens, [q] * len(tokens)), [p] * 4, zeros)
        assert len(verdict.path) == tokens.index(0)


def test_long_drafts_do_not_underflow() -> None:
    """Twelve tokens at p/q = 1e-30, then as many the other way round: a is 1e-360, and 1 again."""
    rare = Distribution(2, np.array([1e-30, 1.0], np.float32))
    sure = Distribution(2, np.array([1.0, 1e-30], np.float32))
    n = 12
    draft = Draft.chain([0] * (2 * n), [sure] * n + [rare] * n)
    rows = [rare] * n + [sure] * (n + 1)
    assert verify(draft, rows).path == tuple(range(2 * n))
    assert math.prod([1e-30] * n) == 0.0


def test_nothing_left_falls_back_to_p() -> None:
    """p = q up to rounding, and the wildest draws: the residual is empty or tiny, and still a token comes."""
    rng = np.random.default_rng(1)
    for n_vocab in (2, 40, 5000):
        probs = rng.dirichlet(np.ones(n_vocab)).astype(np.float32)
        p = Distribution(n_vocab, probs)
        q = Distribution(n_vocab, np.nextafter(probs, np.float32(1.0)))
        for u in (0.0, 0.5, LAST):
            given = {(i, purpose): u for i in range(3) for purpose in Purpose}
            for a, b in [(p, p), (p, q), (q, p)]:
                verdict = verify(Draft.chain([1, 1], [b, b]), [a] * 3, given)
                assert a.prob(verdict.token) > 0


def test_filters_that_differ_between_the_sides() -> None:
    """q after its own top-k: tokens that q cannot draw still come out with their full probability."""
    p, q = constant(law("0.4", "0.3", "0.2", "0.1")), constant(law("0.7", 0, 0, "0.3"))
    for sparse in (False, True):
        assert first_tokens(BLOCK, p, q, 3, lambda r: 2, sparse=sparse) == joint_law(p, 3)


def test_an_argmax_draft_needs_a_one_hot_q() -> None:
    n = 4000
    frequency = {}
    for name, q in {"one-hot": None, "softmax": distribution(Q3)}.items():
        draft, rows = Draft.chain([1, 1], [q, q]), [distribution(P3)] * 3
        verdicts = [BLOCK.verify(draft, rows, RoundRandom(seed, 0)) for seed in range(n)]
        frequency[name] = sum(bool(v.path) or v.token == 1 for v in verdicts) / n
    deviation = 4 * (0.3 * 0.7 / n) ** 0.5
    assert abs(frequency["one-hot"] - 0.3) < deviation
    assert frequency["softmax"] > 0.3 + 2 * deviation


def test_disjoint_supports_reject_always() -> None:
    p, q = constant(law(0, "0.5", "0.5")), constant(law(1, 0, 0))
    assert one_round(BLOCK, p, q, (), 2) == {(1,): Fraction(1, 2), (2,): Fraction(1, 2)}


def test_equal_laws_accept_always() -> None:
    assert expected_accepted(one_round(BLOCK, constant(P3), constant(P3), (), 3)) == 3


def test_temperature_zero_is_greedy() -> None:
    a, b = Distribution.one_hot(9, 4), Distribution.one_hot(9, 5)
    for seed in range(20):
        random = RoundRandom(seed, 3)
        assert BLOCK.verify(Draft.chain([4, 5], [a, b]), [a, b, a], random) == Verdict((0, 1), 4, 2)
        assert BLOCK.verify(Draft.chain([4, 4], [a, a]), [a, b, a], random) == Verdict((0,), 5, 1)
        assert BLOCK.verify(Draft.chain([4, 4, 5], [a, None, b]), [a, b, a, b], random) == Verdict((0,), 5, 1)
        assert BLOCK.verify(Draft.chain([5], [None]), [a, b], random) == Verdict((), 4, 0)


def test_the_last_row_is_asked_for_only_if_all_stand() -> None:
    p, q = distribution(law("0.5", "0.5")), distribution(law("0.1", "0.9"))
    for u, asked in [(LAST, {0, 1}), (0.0, {0, 1, 2})]:
        rows = WatchedRows([p] * 3)
        random = Fixed({(i, Purpose.ACCEPT): u for i in range(2)})
        BLOCK.verify(Draft.chain([1, 1], [q, q]), rows, random)  # type: ignore[arg-type]
        assert rows.asked == asked


def test_rows_behind_an_impossible_token_are_not_asked_for() -> None:
    rows = WatchedRows([Distribution.one_hot(9, t) for t in (1, 2, 3, 4)])
    verdict = BLOCK.verify(Draft.chain([1, 7, 3], [None] * 3), rows, RoundRandom(0, 0))
    assert verdict == Verdict((0,), 2, 1)
    assert rows.asked == {0, 1}


def test_trees_are_refused() -> None:
    tree = Draft(np.array([1, 2], np.int32), np.array([0, 0], np.int32), [None, None])
    with pytest.raises(AssertionError):
        BLOCK.verify(tree, [distribution(P3)] * 3, RoundRandom(0, 0))
