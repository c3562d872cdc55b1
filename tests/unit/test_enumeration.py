"""Exact enumeration by rational rules: the values of the papers, and what the production code says, too."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lucebox import acceptance
from lucebox.errors import ConfigError
from lucebox.research.enumeration import (
    expected_accepted,
    expected_length,
    gumbel_expected_accepted,
    law,
    most_accepted,
    output_law,
    round_law,
    target_law,
    total_variation,
    tree_output_law,
    tree_round_law,
)
from lucebox.research.exact_chain import RULES, Law, gumbel_acceptance
from lucebox.research.exact_tree import RULES as TREE_RULES
from lucebox.research.strategy_rule import rule_of
from tests.support.enumerate import one_round
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

LOSSLESS = ("match", "token", "block")


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("token", ["2/3", "10/9", "38/27", "130/81", "422/243", "1330/729"]),
        ("block", ["2/3", "11/9", "5/3", "166/81", "64/27", "1933/729"]),
    ],
)
def test_the_toy(rule: str, values: list[str]) -> None:
    found = [expected_accepted(RULES[rule], TOY_P, TOY_Q, gamma) for gamma in range(1, 7)]
    assert found == [Fraction(value) for value in values]


def test_the_bound_on_the_toy() -> None:
    found = [most_accepted(TOY_P, TOY_Q, gamma) for gamma in range(1, 7)]
    assert found == [Fraction(v) for v in ("2/3", "4/3", "50/27", "64/27", "226/81", "260/81")]


@pytest.mark.parametrize(
    ("gamma", "token", "block", "bound"),
    [(2, "1.19", "1.25", "1.31"), (3, "1.533", "1.72", "1.908"), (4, "1.7731", "2.1141", "2.4013")],
)
def test_p3(gamma: int, token: str, block: str, bound: str) -> None:
    assert expected_accepted(RULES["token"], P3, Q3, gamma) == Fraction(token)
    assert expected_accepted(RULES["block"], P3, Q3, gamma) == Fraction(block)
    assert most_accepted(P3, Q3, gamma) == Fraction(bound)


def test_p4() -> None:
    assert expected_accepted(RULES["block"], P4, Q4, 2) == Fraction("1.22")
    assert expected_accepted(RULES["block"], P4, Q4, 3) == Fraction("1.623")


@pytest.mark.parametrize(
    ("p", "q", "token", "sampled", "argmax", "gumbel"),
    [(P3, Q3, "0.7", "0.31", "0.3", "43/62"), (P4, Q4, "0.7", "0.32", "0.6", "38/55")],
)
def test_one_draft(p: Law, q: Law, token: str, sampled: str, argmax: str, gumbel: str) -> None:
    assert expected_accepted(RULES["token"], p, q, 1) == Fraction(token)
    assert expected_accepted(RULES["match"], p, q, 1) == Fraction(sampled)
    assert expected_accepted(RULES["match"], p, q, 1, argmax=True) == Fraction(argmax)
    assert gumbel_expected_accepted(p, q, 1) == gumbel_acceptance(p, q) == Fraction(gumbel)


def test_shared_noise_compounds_over_rows_that_depend_on_the_prefix() -> None:
    p, q = markov(3, 2), markov(3, 5)
    assert gumbel_expected_accepted(P3, Q3, 3) == sum(Fraction("43/62") ** i for i in (1, 2, 3))
    assert gumbel_expected_accepted(p, p, 3) == 3
    assert 0 < gumbel_expected_accepted(p, q, 3) <= most_accepted(p, q, 3)


@pytest.mark.parametrize("argmax", [False, True])
@pytest.mark.parametrize("rule", LOSSLESS)
def test_lossless_rules_emit_the_target_s_law(rule: str, argmax: bool) -> None:
    """Four tokens, two rounds or more, with lengths that change from round to round."""
    p, q = markov(3, 2), markov(3, 5)
    found = output_law(RULES[rule], p, q, lambda r: (2, 0, 3)[r % 3], 4, argmax=argmax)
    assert found == target_law(p, 4)
    assert total_variation(found, target_law(p, 4)) == 0
    assert output_law(RULES[rule], p, q, 2, 3, argmax=argmax) == target_law(p, 3)


@pytest.mark.parametrize("rule", ["lenient", "typical"])
def test_lossy_rules_do_not(rule: str) -> None:
    p, q = markov(3, 2), markov(3, 5)
    assert total_variation(output_law(RULES[rule], p, q, 2, 3), target_law(p, 3)) > Fraction("0.01")


@pytest.mark.parametrize("rule", ["match", "token", "block"])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_rules_and_production_code_agree_on_whole_rounds(rule: str, gamma: int) -> None:
    p, q = markov(3, 2), markov(3, 5)
    argmax = rule == "match"
    produced = one_round(acceptance.create(rule), p, q, (), gamma)
    assert round_law(RULES[rule], p, q, gamma, argmax=argmax) == produced


def test_block_accepts_no_less_than_token_and_no_more_than_possible() -> None:
    for salt in range(2, 7):
        p, q = markov(3, salt), markov(3, salt + 3)
        for gamma in (1, 2, 3):
            token, block = (expected_accepted(RULES[name], p, q, gamma) for name in ("token", "block"))
            assert token <= block <= most_accepted(p, q, gamma)


@pytest.mark.parametrize("rule", ["specinfer", "rrs"])
@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2), (1, 2)])
def test_trees_emit_the_target_s_law(rule: str, shape: tuple[int, ...]) -> None:
    p, q = markov(3, 2), constant(law("1/2", "1/3", "1/6"))
    found = tree_output_law(TREE_RULES[rule], p, q, shape, 3, distinct=rule == "rrs")
    assert found == target_law(p, 3)


def test_trees_accept_what_the_papers_say() -> None:
    rrs = tree_round_law(TREE_RULES["rrs"], P3, Q3, (2,), distinct=True)
    assert expected_length(rrs) - 1 == Fraction("283/350")
    specinfer = tree_round_law(TREE_RULES["specinfer"], P3, Q3, (3,))
    assert expected_length(specinfer) - 1 == Fraction("0.808")
    chain = tree_round_law(TREE_RULES["specinfer"], P3, Q3, (1, 1, 1))
    assert chain == round_law(RULES["token"], P3, Q3, 3)


def test_total_variation() -> None:
    assert total_variation({(0,): Fraction(1)}, {(1,): Fraction(1)}) == 1
    assert total_variation(target_law(TOY_P, 1), target_law(TOY_Q, 1)) == Fraction(1, 3)


@pytest.mark.parametrize(
    ("strategy", "gamma", "n_cells"),
    [("match", 1, 3), ("match", 3, 3), ("token", 1, 6), ("token", 3, 6), ("block", 1, 6), ("block", 2, 12)],
)
def test_a_strategy_s_own_code_is_a_rule(strategy: str, gamma: int, n_cells: int) -> None:
    """On laws in thirds all that it compares with is a multiple of 1/n_cells."""
    rule, argmax = rule_of(acceptance.create(strategy), n_cells), strategy == "match"
    found = round_law(rule, TOY_P, TOY_Q, gamma, argmax=argmax)
    assert found == round_law(RULES[strategy], TOY_P, TOY_Q, gamma, argmax=argmax)
    assert output_law(rule, TOY_P, TOY_Q, gamma, 3, argmax=argmax) == target_law(TOY_P, 3)


def test_shared_noise_has_no_rule() -> None:
    with pytest.raises(ConfigError, match="shared noise"):
        rule_of(acceptance.create("gumbel"), n_cells=6)
