"""The joint law of the first tokens, over several rounds, with the production random numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lucebox import acceptance
from lucebox.core import Draft, Verdict
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import joint_law
from tests.support.laws import Choose, Decoder, p_value
from tests.support.toy import P3, Q3, TOY_P, TOY_Q, constant, markov

N_RUNS = 20_000
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
    **{f"{gamma}": always(gamma) for gamma in range(1, 5)},
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


@pytest.mark.parametrize("random", [KeyedByPosition, KeyedByOffset])
def test_wrong_keys_would_be_seen(random: Callable[[int, int], RoundRandom]) -> None:
    decoder = Decoder(acceptance.create("token"), P, Q, by_what_was_discarded, random=random)
    assert p_value(decoder, joint_law(P, 4), N_RUNS) < 1e-6


@pytest.mark.parametrize(
    ("name", "p", "q", "gamma", "expected"),
    [
        ("token", TOY_P, TOY_Q, 1, 2 / 3),
        ("token", TOY_P, TOY_Q, 2, 10 / 9),
        ("token", TOY_P, TOY_Q, 3, 38 / 27),
        ("token", TOY_P, TOY_Q, 4, 130 / 81),
        ("token", TOY_P, TOY_Q, 5, 422 / 243),
        ("token", TOY_P, TOY_Q, 6, 1330 / 729),
        ("token", P3, Q3, 2, 1.19),
        ("token", P3, Q3, 3, 1.533),
        ("token", P3, Q3, 4, 1.7731),
        ("match", P3, Q3, 1, 0.3),
    ],
)
def test_mean_acceptance(
    name: str, p: tuple[object, ...], q: tuple[object, ...], gamma: int, expected: float
) -> None:
    decoder = Decoder(acceptance.create(name), constant(p), constant(q), always(gamma))  # type: ignore[arg-type]
    accepted = [decoder.n_accepted(seed, gamma) for seed in range(N_RUNS)]
    mean = sum(accepted) / N_RUNS
    variance = sum((a - mean) ** 2 for a in accepted) / (N_RUNS - 1)
    assert abs(mean - expected) < 4 * (variance / N_RUNS) ** 0.5
