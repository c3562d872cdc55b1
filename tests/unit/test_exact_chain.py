"""The rational rules: every exact value they are known for, and the production strategies equal to them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox import acceptance
from lucebox.acceptance.typical import Typical
from lucebox.core import Draft
from lucebox.research import exact_chain
from lucebox.research.exact_chain import RULES, ChainRule, Law
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import Model, distribution, joint_law, law, one_hot, verdict_law
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

LOSSLESS = [name for name in RULES if acceptance.get(name).lossless and name != "greedy"]


def chains(drafter: Model, gamma: int) -> list[tuple[tuple[int, ...], Fraction]]:
    """Every chain that may be drafted, and its probability."""
    n_vocab = len(drafter(()))
    weighed = [
        (tokens, math.prod((drafter(tokens[:i])[x] for i, x in enumerate(tokens)), start=Fraction(1)))
        for tokens in product(range(n_vocab), repeat=gamma)
    ]
    return [(tokens, weight) for tokens, weight in weighed if weight]


def rows(model: Model, tokens: tuple[int, ...], n: int) -> list[Law]:
    return [model(tokens[:i]) for i in range(n)]


def expected_accepted(rule: ChainRule, p: Law, q: Law, gamma: int) -> Fraction:
    total = Fraction(0)
    for tokens, weight in chains(constant(q), gamma):
        outcomes = rule(tokens, [p] * (gamma + 1), [q] * gamma)
        assert sum(outcomes.values()) == 1
        total += weight * sum((n * w for (n, _), w in outcomes.items()), Fraction(0))
    return total


def joint_overlap(p: Law, q: Law, gamma: int) -> Fraction:
    """The most that any lossless rule could accept: the sum over lengths of what both joint laws share."""
    return sum(
        (
            min(math.prod((p[x] for x in tokens), start=Fraction(1)), weight)
            for length in range(1, gamma + 1)
            for tokens, weight in chains(constant(q), length)
        ),
        Fraction(0),
    )


TOY = {
    1: ("2/3", "2/3", "2/3"),
    2: ("10/9", "11/9", "4/3"),
    3: ("38/27", "5/3", "50/27"),
    4: ("130/81", "166/81", "64/27"),
    5: ("422/243", "64/27", "226/81"),
    6: ("1330/729", "1933/729", "260/81"),
}
P3_VALUES = {
    1: ("0.7", "0.7", "0.7"),
    2: ("1.19", "1.25", "1.31"),
    3: ("1.533", "1.72", "1.908"),
    4: ("1.7731", "2.1141", "2.4013"),
}
EXPECTED = [(TOY_P, TOY_Q, gamma, values) for gamma, values in TOY.items()]
EXPECTED += [(P3, Q3, gamma, values) for gamma, values in P3_VALUES.items()]


@pytest.mark.parametrize(("p", "q", "gamma", "values"), EXPECTED)
def test_expected_acceptance(p: Law, q: Law, gamma: int, values: tuple[str, ...]) -> None:
    token, block, bound = map(Fraction, values)
    assert expected_accepted(exact_chain.token, p, q, gamma) == token
    assert expected_accepted(exact_chain.block, p, q, gamma) == block
    assert joint_overlap(p, q, gamma) == bound
    assert token <= block <= bound


@pytest.mark.parametrize(("gamma", "expected"), [(1, "0.7"), (2, "1.22"), (3, "1.623")])
def test_block_on_p4(gamma: int, expected: str) -> None:
    assert expected_accepted(exact_chain.block, P4, Q4, gamma) == Fraction(expected)


@pytest.mark.parametrize("gamma", range(1, 5))
def test_block_accepts_the_sum_of_its_a(gamma: int) -> None:
    """E[τ] = Σ E[a(i)], which is what a trace can be summed up by without any sampling."""
    for p, q in [(markov(3, 2), markov(3, 5)), (constant(P4), constant(Q4))]:
        accepted = summed = Fraction(0)
        for tokens, weight in chains(q, gamma):
            p_rows, q_rows = rows(p, tokens, gamma + 1), rows(q, tokens, gamma)
            outcomes = exact_chain.block(tokens, p_rows, q_rows)
            accepted += weight * sum((n * w for (n, _), w in outcomes.items()), Fraction(0))
            a, _ = exact_chain.block_thresholds(tokens, p_rows, q_rows)
            summed += weight * sum(a[1:], Fraction(0))
        assert accepted == summed


def test_one_draft() -> None:
    assert expected_accepted(exact_chain.token, P4, Q4, 1) == Fraction("0.7")
    assert expected_accepted(exact_chain.match, P3, Q3, 1) == Fraction("0.31")
    argmax = one_hot(3, 1)
    assert expected_accepted(exact_chain.match, P3, argmax, 1) == Fraction("0.3")
    assert expected_accepted(exact_chain.token, P3, argmax, 1) == Fraction("0.3")
    assert expected_accepted(exact_chain.block, P3, argmax, 1) == Fraction("0.3")


def test_gumbel_acceptance() -> None:
    assert exact_chain.gumbel_acceptance(P3, Q3) == Fraction(43, 62)
    assert exact_chain.gumbel_acceptance(P4, Q4) == Fraction(38, 55)
    assert exact_chain.gumbel_acceptance(P3, P3) == 1
    assert exact_chain.gumbel_acceptance(one_hot(3, 0), one_hot(3, 1)) == 0
    for p, q in [(P3, Q3), (P4, Q4), (TOY_P, TOY_Q)]:
        distance = exact_chain.total_variation(p, q)
        assert (1 - distance) / (1 + distance) <= exact_chain.gumbel_acceptance(p, q) <= 1 - distance


def test_mentored_laws() -> None:
    """Of l = 0.9 and 0.8 on P3: b, π, what is accepted, how far π is from p; and back from KL to l."""
    for leniency, b, accepted, divergence in [
        ("0.9", "1.125", "34/45", 0.00621),
        ("0.8", "4/3", "0.825", 0.03227),
    ]:
        pi = exact_chain.mentored_law(P3, Q3, Fraction(leniency))
        assert sum(pi) == 1
        assert pi[0] == P3[0] / Fraction(b)
        assert sum(map(min, pi, Q3)) == Fraction(accepted)
        found = exact_chain.kullback_leibler(P3, pi)
        assert found == pytest.approx(divergence, abs=5e-6)
        assert float(exact_chain.mentored_leniency(P3, Q3, found)) == pytest.approx(float(Fraction(leniency)))
    assert pi == law("0.375", "0.375", "0.25")
    assert exact_chain.total_variation(P3, pi) == Fraction(1, 8)
    assert exact_chain.mentored_law(P4, Q4, Fraction(1)) == P4


def test_typical_thresholds() -> None:
    typical = Typical()
    uniform = law(*[1] * 50)
    assert typical.threshold(distribution(P3)) == pytest.approx(0.09)
    assert typical.threshold(distribution(law("0.95", "0.05"))) == pytest.approx(0.09)
    assert typical.threshold(distribution(uniform)) == pytest.approx(0.006, rel=1e-6)
    sure = [law("0.95", "0.05")] * 2
    assert exact_chain.typical((1,), sure, [law(1, 1)]) == {
        (0, 0): Fraction("0.95"),
        (0, 1): Fraction("0.05"),
    }
    assert {n for n, _ in exact_chain.typical((7,), [uniform] * 2, [uniform])} == {1}


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_rules_keep_the_law(name: str, gamma: int) -> None:
    """One round, followed by plain decoding, against plain decoding alone."""
    p, q = markov(3, 2), markov(3, 5)
    found: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    n = gamma + 1
    for tokens, weight in chains(q, gamma):
        outcomes = RULES[name](tokens, rows(p, tokens, gamma + 1), rows(q, tokens, gamma))
        for (n_accepted, emitted), w in outcomes.items():
            text = (*tokens[:n_accepted], emitted)
            behind = joint_law(lambda more, text=text: p((*text, *more)), n - len(text))  # type: ignore[misc]
            for more, rest in behind.items():
                found[(*text, *more)] += weight * w * rest
    assert dict(found) == joint_law(p, n)


CASES: dict[str, Callable[[], tuple[Model, Model]]] = {
    "P3": lambda: (constant(P3), constant(Q3)),
    "P4": lambda: (constant(P4), constant(Q4)),
    "markov": lambda: (markov(3, 1), markov(3, 3)),
    "equal": lambda: (constant(P3), constant(P3)),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [name for name in RULES if name != "greedy"])
def test_production_follows_the_rule(name: str, case: str, deterministic: bool, sparse: bool) -> None:
    """Verdict by verdict, for every chain that may be drafted, and not merely on average."""
    p, q = CASES[case]()
    strategy, gamma = acceptance.create(name), 3
    for tokens, _ in chains(q, gamma):
        p_rows, q_rows = rows(p, tokens, gamma + 1), rows(q, tokens, gamma)
        if deterministic:
            q_rows = [one_hot(len(row), x) for row, x in zip(q_rows, tokens, strict=True)]
        found = verdict_law(strategy, tokens, p_rows, q_rows, deterministic=deterministic, sparse=sparse)
        assert found == RULES[name](tokens, p_rows, q_rows)


@st.composite
def drafted_chains(draw: st.DrawFn) -> tuple[list[int], list[Law], list[Law]]:
    """Tokens with the laws behind and before them, which differ from row to row and have zeros."""

    def any_law() -> Law:
        parts = draw(st.lists(st.integers(0, n_vocab - 1), min_size=8, max_size=8))
        return law(*(parts.count(x) for x in range(n_vocab)))

    n_vocab, gamma = draw(st.integers(2, 4)), draw(st.integers(0, 4))
    p, q = [any_law() for _ in range(gamma + 1)], [any_law() for _ in range(gamma)]
    return [draw(st.sampled_from([x for x, weight in enumerate(row) if weight])) for row in q], p, q


@settings(max_examples=120, deadline=None)
@given(drafted_chains(), st.sampled_from(["token", "block", "match", "lenient", "typical"]), st.booleans())
def test_production_follows_the_rule_on_any_laws(
    drafted: tuple[list[int], list[Law], list[Law]], name: str, sparse: bool
) -> None:
    tokens, p, q = drafted
    assert verdict_law(acceptance.create(name), tokens, p, q, sparse=sparse) == RULES[name](tokens, p, q)


def test_greedy_follows_the_rule() -> None:
    greedy = acceptance.create("greedy")
    p = markov(3, 1)
    for tokens in product(range(3), repeat=3):
        p_rows = rows(p, tokens, 4)
        draft = Draft.chain(tokens, [None] * 3)
        verdict = greedy.verify(draft, [distribution(row) for row in p_rows], RoundRandom(0, 0))
        expected = exact_chain.greedy(tokens, p_rows, [one_hot(3, x) for x in tokens])
        assert expected == {(len(verdict.path), verdict.token): 1}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lenient", {"leniency": Fraction("0.75")}),
        ("mentored", {"divergence": 0.01}),
        ("typical", {"epsilon": Fraction("0.25"), "delta": Fraction("0.5")}),
        ("fuzzy", {"divergence": "kl", "threshold": Fraction("0.25")}),
        ("fuzzy", {"divergence": "tv", "threshold": Fraction("0.25")}),
        ("fuzzy", {"divergence": "tv", "threshold": Fraction("0.375")}),
    ],
)
def test_production_follows_the_rule_with_options(
    name: str, options: dict[str, Fraction | float | str]
) -> None:
    values = {key: value if isinstance(value, str) else float(value) for key, value in options.items()}
    strategy = acceptance.get(name)(**values)
    for p, q in [(markov(3, 1), markov(3, 3)), (constant(P3), constant(Q3))]:
        for tokens, _ in chains(q, 2):
            p_rows, q_rows = rows(p, tokens, 3), rows(q, tokens, 2)
            expected = RULES[name](tokens, p_rows, q_rows, **options)  # type: ignore[call-arg]
            assert verdict_law(strategy, tokens, p_rows, q_rows) == expected
