"""`lenient`: no token ends up likelier than p/l, and l = 1 is `token`."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lucebox import acceptance
from lucebox.acceptance.lenient import Lenient
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import Law, distribution, expected_accepted, law, one_round
from tests.support.target_rows import CollapsedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov


def test_flags() -> None:
    lenient = acceptance.create("lenient")
    assert (lenient.lossless, lenient.needs_q, lenient.supports_trees) == (False, True, False)
    assert lenient.draw_mode is DrawMode.SAMPLE


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
@pytest.mark.parametrize("leniency", [1.0, 0.75, 0.5, 0.125])
@pytest.mark.parametrize(("p", "q"), [(P3, Q3), (P4, Q4), (Q4, P4), (TOY_P, TOY_Q)])
def test_no_token_ends_above_its_bound(p: Law, q: Law, leniency: float, mode: DrawMode, sparse: bool) -> None:
    strategy = Lenient(leniency=leniency)
    outcomes = one_round(strategy, constant(p), constant(q), (), 1, mode=mode, sparse=sparse)
    for token in range(len(p)):
        emitted = sum((w for text, w in outcomes.items() if text[0] == token), Fraction(0))
        assert emitted <= p[token] / Fraction(leniency)


def test_leniency_1_is_token() -> None:
    token, lenient = acceptance.create("token"), Lenient(leniency=1.0)
    p, q = markov(3, 2), markov(3, 5)
    assert one_round(lenient, p, q, (), 3) == one_round(token, p, q, (), 3)
    for seed in range(200):
        draft = Draft.chain([1, 1, 0], [distribution(Q3)] * 3)
        random = RoundRandom(seed, 1)
        assert lenient.verify(draft, [distribution(P3)] * 4, random) == token.verify(
            draft, [distribution(P3)] * 4, random
        )


def test_acceptance_grows_with_lenience() -> None:
    rates = [
        expected_accepted(one_round(Lenient(leniency=x), constant(P3), constant(Q3), (), 1))
        for x in (1.0, 0.75, 0.5, 0.25)
    ]
    assert rates == [Fraction("0.7"), Fraction(13, 15), 1, 1]


def test_a_token_of_probability_zero_never_stands() -> None:
    p, q = distribution(law(0, 1)), distribution(law("0.5", "0.5"))
    for seed in range(50):
        verdict = Lenient(leniency=1e-6).verify(Draft.chain([0], [q]), [p, p], RoundRandom(seed, 0))
        assert verdict == Verdict((), 1, 0)


def test_temperature_zero_accepts_what_comes_close() -> None:
    rows = CollapsedRows([distribution(P3)] * 3)
    for leniency, accepted in [(1.0, {0}), (0.6, {0, 1}), (0.59, {0, 1}), (0.4, {0, 1, 2}), (0.61, {0})]:
        strategy = Lenient(leniency=leniency - 1e-6 if leniency < 1 else 1.0)
        for token in range(3):
            for q in (None, distribution(law(*(int(i == token) for i in range(3))))):
                verdict = strategy.verify(Draft.chain([token], [q]), rows, RoundRandom(5, 5))
                assert verdict == (Verdict((0,), 0, 1) if token in accepted else Verdict((), 0, 0))


def test_options() -> None:
    strategy = acceptance.create("lenient:leniency=0.25")
    assert isinstance(strategy, Lenient)
    assert strategy.leniency == 0.25
    for wrong in ("0", "1.01", "-1", "nan"):
        with pytest.raises(ConfigError, match="leniency must be"):
            acceptance.create(f"lenient:leniency={wrong}")
