"""`match`: exact acceptance and output laws, the same text for any draft, and trees."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import distribution, expected_accepted, first_tokens, joint_law, one_round
from tests.support.laws import Decoder, WatchedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

MATCH = acceptance.create("match")


def test_flags() -> None:
    assert (MATCH.lossless, MATCH.needs_q, MATCH.supports_trees) == (True, False, True)
    assert MATCH.draw_mode is DrawMode.ARGMAX


@pytest.mark.parametrize(
    ("mode", "expected"), [(DrawMode.ARGMAX, Fraction("0.3")), (DrawMode.SAMPLE, Fraction("0.31"))]
)
def test_expected_acceptance_of_one_draft(mode: DrawMode, expected: Fraction) -> None:
    assert expected_accepted(one_round(MATCH, constant(P3), constant(Q3), (), 1, mode=mode)) == expected


@pytest.mark.parametrize("gamma", range(1, 7))
def test_expected_acceptance_of_chains(gamma: int) -> None:
    """An argmax chain is accepted with p(x) at each place, a sampled one with Σpq."""
    for p, q in [(TOY_P, TOY_Q), (P3, Q3), (P4, Q4)][: 3 if gamma < 4 else 1]:
        modes = {
            DrawMode.ARGMAX: p[q.index(max(q))],
            DrawMode.SAMPLE: sum((a * b for a, b in zip(p, q, strict=True)), Fraction(0)),
        }
        for mode, rate in modes.items():
            found = expected_accepted(one_round(MATCH, constant(p), constant(q), (), gamma, mode=mode))
            assert found == sum((rate**i for i in range(1, gamma + 1)), Fraction(0))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", [DrawMode.SAMPLE, DrawMode.ARGMAX])
@pytest.mark.parametrize("gammas", [(1,), (2,), (3,), (4,), (2, 0, 1)])
def test_joint_law_is_the_target_s(gammas: tuple[int, ...], mode: DrawMode, sparse: bool) -> None:
    p, q = markov(3, 2), markov(3, 5)
    found = first_tokens(MATCH, p, q, 4, lambda r: gammas[r % len(gammas)], mode=mode, sparse=sparse)
    assert found == joint_law(p, 4)


def test_a_seed_s_text_does_not_depend_on_the_draft() -> None:
    p = markov(4, 3)
    choices = [
        lambda text, draft, verdict: 0,
        lambda text, draft, verdict: 1,
        lambda text, draft, verdict: 4,
        lambda text, draft, verdict: len(text) % 3,
        lambda text, draft, verdict: 2 + len(verdict.path) if verdict else 1,
    ]
    decoders = [Decoder(MATCH, p, markov(4, salt), choose) for choose in choices for salt in (3, 5)]
    for seed in range(20):
        assert len({decoder.tokens(seed, 16) for decoder in decoders}) == 1
    assert len({decoders[0].tokens(seed, 16) for seed in range(20)}) == 20


def test_the_token_of_a_tree_s_path_is_found() -> None:
    """Rows: 0 → {5, 6}, 6 → {7, 8}; the target says 6, 8, 1."""
    tree = Draft(np.array([5, 6, 7, 8], np.int32), np.array([0, 0, 2, 2], np.int32), [None] * 4)
    rows = WatchedRows([Distribution.one_hot(9, t) for t in (6, 0, 8, 0, 1)])
    assert MATCH.verify(tree, rows, RoundRandom(1, 1)) == Verdict((1, 3), 1, 4)
    assert rows.asked == {0, 2, 4}


def test_the_law_of_a_tree_is_the_target_s() -> None:
    """All three first tokens drafted, and a second one behind one of them; each depth has its own draw."""
    tree = Draft(np.array([0, 1, 2, 1], np.int32), np.array([0, 0, 0, 2], np.int32), [None] * 4)
    rows = [distribution(P3)] * 5
    n = 20_000
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(n):
        verdict = MATCH.verify(tree, rows, RoundRandom(seed, 6))
        assert len(verdict.path) >= 1
        counts[(*(int(tree.tokens[i]) for i in verdict.path), verdict.token)[:2]] += 1
    for (a, b), count in counts.items():
        expected = float(P3[a] * P3[b])
        assert abs(count / n - expected) < 4 * (expected * (1 - expected) / n) ** 0.5


def test_plain_decoding_draws_at_the_position() -> None:
    law = distribution(P3)
    for seed in range(20):
        random = RoundRandom(seed, 17)
        u = RoundRandom(seed, 3).at_position(17, Purpose.TARGET)
        assert MATCH.verify(Draft.empty(), [law], random) == Verdict((), sample(law, u), 0)
