"""`fuzzy`: the divergence of the laws decides, and the drafted token has no say."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lucebox import acceptance
from lucebox.acceptance.fuzzy import DIVERGENCES, Fuzzy
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.research import exact_chain
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, distribution, expected_accepted, law, one_round
from tests.support.target_rows import CollapsedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant

MEASURES = {
    "js": exact_chain.jensen_shannon,
    "kl": exact_chain.kullback_leibler,
    "tv": exact_chain.total_variation,
}


def test_flags() -> None:
    fuzzy = acceptance.create("fuzzy")
    assert (fuzzy.lossless, fuzzy.needs_q, fuzzy.supports_trees) == (False, True, False)
    assert fuzzy.draw_mode is DrawMode.SAMPLE


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", DIVERGENCES)
@pytest.mark.parametrize(("p", "q"), [(P3, Q3), (P4, Q4), (TOY_P, TOY_Q)])
def test_all_or_nothing(p: Law, q: Law, kind: str, sparse: bool) -> None:
    divergence = float(MEASURES[kind](p, q))
    for threshold, rate in [(divergence - 1e-5, 0), (divergence + 1e-5, 1)]:
        strategy = Fuzzy(divergence=kind, threshold=threshold)
        outcomes = one_round(strategy, constant(p), constant(q), (), 1, sparse=sparse)
        assert expected_accepted(outcomes) == rate


def test_kl_is_infinite_where_q_lacks_a_token() -> None:
    wide = Fuzzy(divergence="kl", threshold=1e6)
    assert expected_accepted(one_round(wide, constant(Q4), constant(P4), (), 1)) == 0
    assert expected_accepted(one_round(wide, constant(P4), constant(Q4), (), 1)) == 1


def test_a_deterministic_draft_is_one_hot() -> None:
    """TV(p, one-hot) = 1 - p(x)."""
    p = distribution(P3)
    for token, probability in enumerate(map(float, P3)):
        for threshold, stands in [(1 - probability + 1e-5, True), (1 - probability - 1e-5, False)]:
            strategy = Fuzzy(divergence="tv", threshold=threshold)
            verdict = strategy.verify(Draft.chain([token], [None]), [p, p], RoundRandom(0, 0))
            assert bool(verdict.path) == stands


def test_a_rejection_is_followed_by_a_draw_from_p() -> None:
    strategy = Fuzzy(divergence="tv", threshold=0.0)
    p, q = distribution(P3), distribution(Q3)
    for seed in range(50):
        random = RoundRandom(seed, 4)
        verdict = strategy.verify(Draft.chain([1, 1], [p, q]), [p, p, p], random)
        assert verdict == Verdict((0,), sample(p, random.uniform(1, Purpose.RESIDUAL)), 1)
    outcomes = one_round(strategy, constant(P3), constant(Q3), (), 1)
    assert outcomes == {(token,): probability for token, probability in enumerate(P3)}
    assert sum(outcomes.values()) == Fraction(1)


def test_temperature_zero_goes_by_the_law_behind_it() -> None:
    rows = CollapsedRows([distribution(P3), distribution(law("0.2", "0.8")), distribution(P3)])
    strategy = Fuzzy(divergence="tv", threshold=0.71)
    assert strategy.verify(Draft.chain([1, 1], [None] * 2), rows, RoundRandom(0, 0)) == Verdict((0, 1), 0, 2)
    assert strategy.verify(Draft.chain([2, 1], [None] * 2), rows, RoundRandom(0, 0)) == Verdict((), 0, 0)
    strict = Fuzzy(threshold=0.0)
    assert strict.verify(Draft.chain([0, 1], [None] * 2), rows, RoundRandom(0, 0)) == Verdict((0, 1), 0, 2)
    assert strict.verify(Draft.chain([0, 0], [None] * 2), rows, RoundRandom(0, 0)) == Verdict((0,), 1, 1)


def test_options() -> None:
    strategy = acceptance.create("fuzzy:divergence=kl,threshold=0.4")
    assert isinstance(strategy, Fuzzy)
    assert (strategy.divergence, strategy.threshold) == ("kl", 0.4)
    with pytest.raises(ConfigError, match="unknown divergence 'jss'"):
        acceptance.create("fuzzy:divergence=jss")
    for wrong in ("-1", "nan"):
        with pytest.raises(ConfigError, match="threshold must be"):
            acceptance.create(f"fuzzy:threshold={wrong}")
