"""The joint law of the first tokens, over several rounds, with the production random numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from lucebox import acceptance
from lucebox.core import Draft, Verdict
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, joint_law
from tests.support.laws import Choose, Decoder, p_value
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q, constant, markov

N_RUNS = 4_000
TOY_TOKEN = ("2/3", "10/9", "38/27", "130/81", "422/243", "1330/729")
TOY_BLOCK = ("2/3", "11/9", "5/3", "166/81", "64/27", "1933/729")
P, Q = markov(3, 1), markov(3, 3)
# A new strategy that calls itself lossless is tested by being there.
LOSSLESS = [
    name
    for name in acceptance.names()
    if acceptance.get(name).lossless and not acceptance.get(name).temperature_0_only
]


def always(gamma: int) -> Choose:
    return lambda text, draft, verdict: gamma


def by_place(text: tuple[int, ...], draft: Draft | None, verdict: Verdict | None) -> int:
    return (3, 1, 4, 2, 0)[len(text) % 5]


def by_what_was_discarded(text: tuple[int, ...], draft: Draft | None, verdict: Verdict | None) -> int:
    """Lengths that depend on tokens behind the rejected one: harmless, for their draws are never met
    again."""
    return 2 if draft is None or not len(draft) else int(draft.tokens[-1])


LENGTHS = {
    "1": always(1),
    "4": always(4),
    "by place": by_place,
    "by what was discarded": by_what_was_discarded,
}


@pytest.mark.parametrize("choose", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", LOSSLESS)
def test_speculation_keeps_the_law(name: str, choose: Choose) -> None:
    decoder = Decoder(acceptance.create(name), P, Q, choose)
    assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


@pytest.mark.parametrize("name", LOSSLESS)
def test_speculation_keeps_the_law_of_sparse_rows(name: str) -> None:
    p, q = markov(5, 3), markov(5, 4)
    decoder = Decoder(acceptance.create(name), p, q, always(3), sparse=True)
    assert p_value(decoder, joint_law(p, 3), N_RUNS) > 1e-3


class KeyedByPosition(RoundRandom):
    """The wrong key: draws of a place in the text are met again by the next round."""

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        return super().at_position(self.position + offset, purpose)


class KeyedByOffset(RoundRandom):
    """The wrong key: every round sees the same draws."""

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        return super().at_position(offset, purpose)


def test_the_strategies_of_sampled_requests_are_among_them() -> None:
    assert {acceptance.default(SamplingParams(seed=seed)) for seed in (None, 1)} <= set(LOSSLESS)


@pytest.mark.parametrize("name", ["token", "block"])
@pytest.mark.parametrize("random", [KeyedByPosition, KeyedByOffset])
def test_wrong_keys_would_be_seen(random: Callable[[int, int], RoundRandom], name: str) -> None:
    decoder = Decoder(acceptance.create(name), P, Q, by_what_was_discarded, random=random)
    assert p_value(decoder, joint_law(P, 4), N_RUNS) < 1e-6


def test_block_at_one_length_needs_keys_by_round() -> None:
    """It looks behind the accepted prefix: keyed by position alone, three toy tokens are off by TV 1/18."""
    p, n, n_runs = constant(TOY_P), 3, 8_000
    exact = joint_law(p, n)
    distances = {}
    for random in (RoundRandom, KeyedByPosition):
        decoder = Decoder(acceptance.create("block"), p, constant(TOY_Q), always(2), random=random)
        counts = Counter(decoder.tokens(seed, n) for seed in range(n_runs))
        distances[random] = sum(abs(counts[text] / n_runs - float(w)) for text, w in exact.items()) / 2
    assert distances[RoundRandom] < 0.02
    assert abs(distances[KeyedByPosition] - 1 / 18) < 0.02


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_draft_may_end_where_its_tokens_say(name: str) -> None:
    """Behind a token of the draft itself, or where its law says so before one is drawn."""
    ends = Decoder(acceptance.create(name), P, Q, always(4), stop_tokens=frozenset({2}))
    unsure = Decoder(acceptance.create(name), P, Q, always(4), keep=lambda law, depth: law.probs.max() > 0.5)
    for decoder in (ends, unsure):
        assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


ONE_ROUND = [
    *(("token", TOY_P, TOY_Q, i + 1, e) for i, e in enumerate(TOY_TOKEN)),
    *(("block", TOY_P, TOY_Q, i + 1, e) for i, e in enumerate(TOY_BLOCK)),
    *(("token", P3, Q3, i + 1, e) for i, e in enumerate(("0.7", "1.19", "1.533", "1.7731"))),
    *(("block", P3, Q3, i + 1, e) for i, e in enumerate(("0.7", "1.25", "1.72", "2.1141"))),
    *(("block", P4, Q4, i + 1, e) for i, e in enumerate(("0.7", "1.22", "1.623"))),
    ("token", P4, Q4, 1, "0.7"),
    ("match", P3, Q3, 1, "0.3"),
    ("gumbel", P3, Q3, 1, "43/62"),
    ("gumbel", P4, Q4, 1, "38/55"),
]


@pytest.mark.parametrize(("name", "p", "q", "gamma", "expected"), ONE_ROUND)
def test_mean_acceptance(name: str, p: Law, q: Law, gamma: int, expected: str) -> None:
    decoder = Decoder(acceptance.create(name), constant(p), constant(q), always(gamma))
    accepted = [decoder.n_accepted(seed, gamma) for seed in range(N_RUNS)]
    mean = sum(accepted) / N_RUNS
    variance = sum((a - mean) ** 2 for a in accepted) / (N_RUNS - 1)
    assert abs(mean - Fraction(expected)) < 4 * (variance / N_RUNS) ** 0.5
