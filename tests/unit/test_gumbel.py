"""`gumbel`: one noise for both sides, so that the text is the target's whatever is drafted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.research.exact_chain import Law, gumbel_acceptance
from lucebox.sampling.gumbel import gumbel_argmax
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import distribution, law
from tests.support.laws import Decoder, WatchedRows
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, markov

GUMBEL = acceptance.create("gumbel")
N_RUNS = 8_000


def test_flags() -> None:
    assert (GUMBEL.lossless, GUMBEL.needs_q, GUMBEL.supports_trees) == (True, False, True)
    assert GUMBEL.draw_mode is DrawMode.SHARED_NOISE


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("p", "q"), [(P3, Q3), (P4, Q4), (Q4, P4), (TOY_P, TOY_Q)])
def test_both_sides_agree_as_often_as_they_should(p: Law, q: Law, sparse: bool) -> None:
    a, b = distribution(p), distribution(q, sparse=sparse)
    agreed = sum(gumbel_argmax(a, seed, 5) == gumbel_argmax(b, seed, 5) for seed in range(N_RUNS))
    expected = float(gumbel_acceptance(p, q))
    assert abs(agreed / N_RUNS - expected) < 4 * (expected * (1 - expected) / N_RUNS) ** 0.5


def test_impossible_tokens_are_skipped_on_either_side() -> None:
    p, q = distribution(law("0.5", "0.5", 0, 0)), distribution(law(0, 0, "0.5", "0.5"))
    for seed in range(200):
        assert gumbel_argmax(p, seed, 0) in (0, 1)
        assert gumbel_argmax(q, seed, 0) in (2, 3)


def test_the_noise_knows_seed_and_position_only() -> None:
    p = distribution(law(*range(1, 60)))
    assert gumbel_argmax(p, 3, 9) == gumbel_argmax(p, 3, 9)
    assert gumbel_argmax(p, 3, 9) == gumbel_argmax(p, 3 + 2**64, 9)
    assert gumbel_argmax(p, -1, 9) == gumbel_argmax(p, 2**64 - 1, 9)
    assert len({gumbel_argmax(p, seed, 9) for seed in range(50)}) > 20
    assert len({gumbel_argmax(p, 3, position) for position in range(50)}) > 20


def test_a_seed_s_text_does_not_depend_on_the_draft() -> None:
    p = markov(4, 3)
    choices = [
        lambda text, draft, verdict: 0,
        lambda text, draft, verdict: 1,
        lambda text, draft, verdict: 4,
        lambda text, draft, verdict: len(text) % 3,
    ]
    decoders = [Decoder(GUMBEL, p, markov(4, salt), choose) for choose in choices for salt in (3, 5)]
    for seed in range(20):
        assert len({decoder.tokens(seed, 16) for decoder in decoders}) == 1
    assert len({decoders[0].tokens(seed, 16) for seed in range(20)}) == 20


def test_equal_laws_accept_always() -> None:
    decoder = Decoder(GUMBEL, markov(4, 3), markov(4, 3), lambda text, draft, verdict: 3)
    assert {decoder.n_accepted(seed, 3) for seed in range(100)} == {3}


def test_temperature_zero_is_greedy() -> None:
    a, b = Distribution.one_hot(9, 4), Distribution.one_hot(9, 5)
    for seed in range(20):
        random = RoundRandom(seed, 3)
        assert GUMBEL.verify(Draft.chain([4, 5], [a, b]), [a, b, a], random) == Verdict((0, 1), 4, 2)
        assert GUMBEL.verify(Draft.chain([4, 4], [None, None]), [a, b, a], random) == Verdict((0,), 5, 1)
        assert gumbel_argmax(a, seed, 3) == 4


def test_a_deterministic_draft_is_kept_iff_the_target_says_it() -> None:
    p = distribution(P3)
    n = 4000
    verdicts = [GUMBEL.verify(Draft.chain([1], [None]), [p, p], RoundRandom(seed, 2)) for seed in range(n)]
    counts = Counter(1 if v.path else v.token for v in verdicts)
    for token, probability in enumerate(map(float, P3)):
        assert abs(counts[token] / n - probability) < 4 * (probability * (1 - probability) / n) ** 0.5
    assert all(v.path or v.token != 1 for v in verdicts)


def test_the_token_of_a_tree_s_path_is_found() -> None:
    tree = Draft(np.array([5, 6, 7, 8], np.int32), np.array([0, 0, 2, 2], np.int32), [None] * 4)
    rows = WatchedRows([Distribution.one_hot(9, t) for t in (6, 0, 8, 0, 1)])
    assert GUMBEL.verify(tree, rows, RoundRandom(1, 1)) == Verdict((1, 3), 1, 4)
    assert rows.asked == {0, 2, 4}


def test_plain_decoding_draws_at_the_position() -> None:
    p = distribution(P3)
    for seed in range(20):
        verdict = GUMBEL.verify(Draft.empty(), [p], RoundRandom(seed, 17))
        assert verdict == Verdict((), gumbel_argmax(p, seed, 17), 0)
