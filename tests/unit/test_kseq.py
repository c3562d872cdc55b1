"""`kseq`: one ratio for candidates of one law, and groups where laws differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lucebox import acceptance
from lucebox.core import Draft
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import distribution, joint_law, law
from tests.support.enumerate_trees import expected_accepted, first_tokens
from tests.support.toy import P3, Q3, constant

KSEQ, SPECINFER = acceptance.create("kseq"), acceptance.create("specinfer")


class Constant(RoundRandom):
    """One number for every draw."""

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        return self.seed / 1000


def test_all_candidates_are_judged_by_one_ratio() -> None:
    """P3 at k=2: rho is 1.4568, so token 1 stands below .3/(1.4568 * .5) = .4119, first or second."""
    p, q = distribution(P3), distribution(Q3)
    draft = Draft(np.array([1, 1], np.int32), np.zeros(2, np.int32), [q, q])
    assert KSEQ.verify(draft, [p, p, p], Constant(411, 0)).path == (0,)
    assert KSEQ.verify(draft, [p, p, p], Constant(412, 0)).path == ()


def test_candidates_of_different_laws_are_judged_in_groups() -> None:
    """A law of its own, or none, takes a candidate out of the group: judged as by `specinfer` then."""
    p = distribution(P3)
    laws = [distribution(Q3), None, distribution(law("0.1", "0.1", "0.8"))]
    draft = Draft(np.array([1, 2, 2], np.int32), np.zeros(3, np.int32), laws)
    for seed in range(300):
        random = RoundRandom(seed, 0)
        assert KSEQ.verify(draft, [p] * 4, random) == SPECINFER.verify(draft, [p] * 4, random)


def test_a_likely_and_an_unlikely_overlap() -> None:
    """beta is 1 where p = q, and 0 where they do not meet."""
    assert 1 - expected_accepted(KSEQ, constant(P3), constant(P3), (2,)) < 1e-15
    apart = law("0.5", "0.5", 0), law(0, 0, 1)
    assert expected_accepted(KSEQ, constant(apart[0]), constant(apart[1]), (2,)) == 0
    assert first_tokens(KSEQ, constant(apart[0]), constant(apart[1]), (2,), 2) == joint_law(
        constant(apart[0]), 2
    )


def test_accepts_more_than_specinfer_on_p3() -> None:
    ours = expected_accepted(KSEQ, constant(P3), constant(Q3), (2,))
    assert abs(float(ours) - 0.791355) < 1e-6
    assert ours > expected_accepted(SPECINFER, constant(P3), constant(Q3), (2,)) == Fraction("0.76")
