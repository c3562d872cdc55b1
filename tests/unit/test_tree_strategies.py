"""specinfer, rrs, kseq and traversal: exact laws, by enumeration of the production code, and their traps."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.research.exact_tree import RULES
from lucebox.research.exact_tree import acceptance as exact_acceptance
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, distribution, joint_law, law
from tests.support.enumerate_trees import expected_accepted, first_tokens, trees, verdicts
from tests.support.laws import WatchedRows
from tests.support.toy import P3, P4, Q3, Q4, constant, markov

STRATEGIES = {name: acceptance.create(name) for name in RULES}
MODES = {
    "specinfer": DrawMode.SAMPLE,
    "kseq": DrawMode.SAMPLE,
    "rrs": DrawMode.WITHOUT_REPLACEMENT,
    "traversal": DrawMode.WITHOUT_REPLACEMENT,
}
BY_NAME = pytest.mark.parametrize("name", STRATEGIES)
LIKELY, OTHER = Distribution.one_hot(9, 4), Distribution.one_hot(9, 5)


def same(name: str, found: Mapping[Any, Fraction], expected: Mapping[Any, Fraction]) -> None:
    """Equal, fraction by fraction; to 1e-12 where the rule itself is irrational."""
    if name != "kseq":
        assert found == expected
        return
    for key in {*found, *expected}:
        assert abs(found.get(key, 0) - expected.get(key, 0)) < 1e-12


@BY_NAME
def test_flags(name: str) -> None:
    strategy = STRATEGIES[name]
    assert (strategy.lossless, strategy.needs_q, strategy.supports_trees) == (True, True, True)
    assert strategy.draw_mode is MODES[name]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("laws", [(P3, Q3), (P4, Q4)], ids=["P3", "P4"])
@BY_NAME
def test_one_place_follows_the_exact_rule(name: str, laws: tuple[Law, Law], k: int, sparse: bool) -> None:
    """Candidate by candidate, for every way in which they may be drawn."""
    p, q = laws
    accepted = Fraction(0)
    for tree, weight in trees(constant(p), constant(q), (k,), MODES[name]):
        found = verdicts(STRATEGIES[name], tree, sparse=sparse)
        emitted: dict[tuple[int, int], Fraction] = {}
        for (path, token), w in found.items():
            key = (path[0], tree.tokens[path[0]]) if path else (-1, token)
            emitted[key] = emitted.get(key, Fraction(0)) + w
            accepted += weight * w * len(path)
        same(name, emitted, RULES[name](tree.tokens, p, q))
    same(name, {0: accepted}, {0: exact_acceptance(name, p, q, k)})


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 1), (1, 2)])
@BY_NAME
def test_joint_law_is_the_target_s(name: str, shape: tuple[int, ...]) -> None:
    """Three tokens, so two rounds or more, with laws that depend on the prefix and differ in support."""
    p, q = markov(3, 2), markov(3, 5)
    same(name, first_tokens(STRATEGIES[name], p, q, shape, 3), joint_law(p, 3))


@pytest.mark.parametrize("mode", [DrawMode.ARGMAX, DrawMode.SAMPLE, DrawMode.WITHOUT_REPLACEMENT])
@BY_NAME
def test_any_kind_of_candidates_keeps_the_law(name: str, mode: DrawMode) -> None:
    p, q = markov(2, 2), markov(2, 5)
    found = first_tokens(STRATEGIES[name], p, q, (2, 2), 3, mode=mode, sparse=True)
    same(name, found, joint_law(p, 3))


@BY_NAME
def test_more_candidates_are_accepted_more_often(name: str) -> None:
    rates = [expected_accepted(STRATEGIES[name], constant(P3), constant(Q3), (k,)) for k in (1, 2, 3)]
    assert rates[0] < rates[1] < rates[2]


@BY_NAME
def test_filters_that_differ_between_the_sides(name: str) -> None:
    p, q = constant(law("0.4", "0.3", "0.2", "0.1")), constant(law("0.7", 0, 0, "0.3"))
    for sparse in (False, True):
        same(name, first_tokens(STRATEGIES[name], p, q, (2,), 2, sparse=sparse), joint_law(p, 2))


@BY_NAME
def test_disjoint_supports_reject_always(name: str) -> None:
    p, q = constant(law(0, 0, "0.5", "0.5")), constant(law("0.5", "0.5", 0, 0))
    for tree, _ in trees(p, q, (2, 1), MODES[name]):
        half = Fraction(1, 2)
        assert verdicts(STRATEGIES[name], tree) == {((), 2): half, ((), 3): half}


@BY_NAME
def test_temperature_zero_is_greedy(name: str) -> None:
    strategy = STRATEGIES[name]
    tree = Draft(np.array([5, 4, 4, 5], np.int32), np.array([0, 0, 2, 2], np.int32), [None] * 4)
    for seed in range(20):
        random = RoundRandom(seed, 3)
        assert strategy.verify(tree, [LIKELY, OTHER, OTHER, LIKELY, LIKELY], random) == Verdict((1, 3), 4, 4)
        assert strategy.verify(tree, [OTHER, LIKELY, OTHER, LIKELY, LIKELY], random) == Verdict((0,), 4, 1)
        sampled = Draft.chain([4, 4], [LIKELY, LIKELY])
        assert strategy.verify(sampled, [LIKELY, OTHER, LIKELY], random) == Verdict((0,), 5, 1)


@BY_NAME
def test_an_empty_draft_is_plain_decoding(name: str) -> None:
    p, random = distribution(P3), RoundRandom(5, 7)
    verdict = STRATEGIES[name].verify(Draft.empty(), [p], random)
    plain = acceptance.create("token").verify(Draft.empty(), [p], random)
    assert verdict == plain


@BY_NAME
def test_rows_without_hope_are_not_asked_for(name: str) -> None:
    """Rows behind candidates that cannot stand are never computed."""
    draft = Draft(np.array([5, 1, 4, 1], np.int32), np.array([0, 1, 0, 3], np.int32), [None] * 4)
    rows = WatchedRows([LIKELY, OTHER, OTHER, OTHER, LIKELY])
    assert STRATEGIES[name].verify(draft, rows, RoundRandom(0, 0)) == Verdict((2,), 5, 3)
    assert rows.asked == {0, 3}


@pytest.mark.parametrize(
    ("name", "twin"), [*((n, "token") for n in ("specinfer", "rrs", "kseq")), ("traversal", "block")]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_chain_is_judged_as_by(name: str, twin: str, sparse: bool) -> None:
    """Draw by draw, with the production random numbers."""
    p, q = markov(5, 3), markov(5, 4)
    one, other = STRATEGIES[name], acceptance.create(twin)
    n_tokens = 5
    for seed in range(400):
        random = RoundRandom(seed, 11)
        tokens: list[int] = []
        for depth in range(n_tokens):
            exact = q(tuple(tokens))
            u = random.uniform(depth, Purpose.DRAFT)
            tokens.append(next(t for t in range(5) if sum(exact[: t + 1]) > u))
        laws = [distribution(q(tuple(tokens[:i])), sparse=sparse) for i in range(n_tokens)]
        rows = [distribution(p(tuple(tokens[:i])), sparse=sparse) for i in range(n_tokens + 1)]
        draft = Draft.chain(tokens, laws)
        assert one.verify(draft, rows, random) == other.verify(draft, rows, random)
