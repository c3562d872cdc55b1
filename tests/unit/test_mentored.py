"""`mentored`: the law of a token stays within its KL bound, and takes all that the bound allows."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lucebox import acceptance
from lucebox.acceptance.mentored import Mentored
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.research.exact_chain import kullback_leibler, mentored_law
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import Law, distribution, expected_accepted, law, one_round
from tests.support.target_rows import CollapsedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant

BOUNDS = [0.0, 0.001, 0.03, 0.5, 3.0]
PAIRS = [(P3, Q3), (P4, Q4), (TOY_P, TOY_Q)]


def emitted(strategy: Mentored, p: Law, q: Law, mode: DrawMode, *, sparse: bool = False) -> Law:
    """The law of the first token of a round."""
    outcomes = one_round(strategy, constant(p), constant(q), (), 1, mode=mode, sparse=sparse)
    return tuple(
        sum((w for text, w in outcomes.items() if text[0] == token), Fraction(0)) for token in range(len(p))
    )


def test_flags() -> None:
    mentored = acceptance.create("mentored")
    assert (mentored.lossless, mentored.needs_q, mentored.supports_trees) == (False, True, False)
    assert mentored.draw_mode is DrawMode.SAMPLE


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_the_bound_holds(p: Law, q: Law, bound: float, mode: DrawMode, sparse: bool) -> None:
    found = emitted(Mentored(divergence=bound), p, q, mode, sparse=sparse)
    assert kullback_leibler(p, found) <= bound + 1e-9
    assert all(not x or y for x, y in zip(found, p, strict=True))  # nothing that p rules out


@pytest.mark.parametrize(
    ("leniency", "bound", "rate"), [("0.9", 0.00621126, 34 / 45), ("0.8", 0.03226926, 0.825)]
)
def test_known_values_on_p3(leniency: str, bound: float, rate: float) -> None:
    strategy = Mentored(divergence=bound)
    assert float(expected_accepted(one_round(strategy, constant(P3), constant(Q3), (), 1))) == pytest.approx(
        rate
    )
    pi = mentored_law(P3, Q3, Fraction(leniency))
    found = emitted(strategy, P3, Q3, DrawMode.SAMPLE)
    assert list(map(float, found)) == pytest.approx(list(map(float, pi)), abs=1e-6)


def test_known_rates_with_the_production_random_numbers() -> None:
    n = 6000
    for bound, rate in [(0.00621126, 34 / 45), (0.03226926, 0.825)]:
        strategy, p, q = Mentored(divergence=bound), distribution(P3), distribution(Q3)
        accepted = 0
        for seed in range(n):
            token = seed % 10
            drafted = 0 if token < 2 else 1 if token < 7 else 2  # q, exactly
            accepted += len(strategy.verify(Draft.chain([drafted], [q]), [p, p], RoundRandom(seed, 0)).path)
        assert abs(accepted / n - rate) < 4 * (rate * (1 - rate) / n) ** 0.5


def test_a_bound_of_0_is_token_and_a_wide_one_accepts_all() -> None:
    token = acceptance.create("token")
    for p, q in PAIRS:
        exact = expected_accepted(one_round(token, constant(p), constant(q), (), 2))
        strict = expected_accepted(one_round(Mentored(divergence=0.0), constant(p), constant(q), (), 2))
        assert float(strict) == pytest.approx(float(exact), abs=1e-3)
    assert expected_accepted(one_round(Mentored(divergence=3.0), constant(P3), constant(Q3), (), 2)) == 2


@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
def test_acceptance_grows_with_the_bound(mode: DrawMode) -> None:
    for p, q in PAIRS:
        rates = [
            expected_accepted(
                one_round(Mentored(divergence=bound), constant(p), constant(q), (), 1, mode=mode)
            )
            for bound in BOUNDS
        ]
        assert rates == sorted(rates)


def test_equal_and_disjoint_laws() -> None:
    strategy = Mentored()
    assert expected_accepted(one_round(strategy, constant(P3), constant(P3), (), 3)) == 3
    p, q = constant(law(0, "0.5", "0.5")), constant(law(1, 0, 0))
    assert one_round(strategy, p, q, (), 2) == {(1,): Fraction(1, 2), (2,): Fraction(1, 2)}


def test_temperature_zero_accepts_what_comes_close() -> None:
    """x may be made as likely as the likeliest: l = p(x)/max p costs 0.082 nats for token 1, 0.193 for 2."""
    rows = CollapsedRows([distribution(P3)] * 2)
    for bound, accepted in [(0.0, {0}), (0.08, {0}), (0.085, {0, 1}), (0.19, {0, 1}), (0.195, {0, 1, 2})]:
        strategy = Mentored(divergence=bound)
        for token in range(3):
            verdict = strategy.verify(Draft.chain([token], [None]), rows, RoundRandom(1, 1))
            assert bool(verdict.path) == (token in accepted)
    verdict = Mentored().verify(Draft.chain([2], [None]), rows, RoundRandom(1, 1))
    assert verdict == Verdict((), 0, 0)


def test_options() -> None:
    strategy = acceptance.create("mentored:divergence=0.2")
    assert isinstance(strategy, Mentored)
    assert strategy.divergence == 0.2
    for wrong in ("-0.1", "inf", "nan"):
        with pytest.raises(ConfigError, match="divergence must be"):
            acceptance.create(f"mentored:divergence={wrong}")
