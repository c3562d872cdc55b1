"""Sums of what requests cost: they add up in any order, and the figures that users know come out of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox.engine.timings import DraftedRound, DrafterTotals, Timings

NAMES = ("model", "suffix", "ngram:n=3")


@st.composite
def rounds(draw: st.DrawFn) -> DraftedRound:
    """A round of a chain or of a tree, which has more tokens than it is deep."""
    depth = draw(st.integers(1, 6))
    return DraftedRound(
        drafter=draw(st.sampled_from(NAMES)),
        n_drafted=depth + draw(st.integers(0, 9)),
        depth=depth,
        n_accepted=draw(st.integers(0, depth)),
    )


def total(drafted: list[DraftedRound]) -> Timings:
    return sum((one.timings() for one in drafted), Timings())


def test_times_add_and_derive() -> None:
    timings = Timings(prompt_n=10, prompt_ms=500.0, verify_ms=1.0) + Timings(
        predicted_n=20, predicted_ms=2000.0, draft_n=8, draft_n_accepted=6, draft_ms=250.0, verify_ms=2.0
    )
    assert timings.prompt_per_second == 20.0
    assert timings.predicted_per_second == 10.0
    assert timings.acceptance_rate == 0.75
    assert timings.verify_ms == 3.0
    assert timings.draft_share == 0.1


def test_figures_before_anything_was_measured() -> None:
    nothing = Timings()
    assert (nothing.prompt_per_second, nothing.predicted_per_second, nothing.draft_share) == (0, 0, 0)
    assert (nothing.acceptance_rate, nothing.mean_acceptance_length) == (0, 1)
    assert nothing.per_position_acceptance == []


def test_figures_of_known_rounds() -> None:
    timings = total(
        [
            DraftedRound("model", 3, 3, 3),
            DraftedRound("model", 3, 3, 1),
            DraftedRound("suffix", 2, 2, 0),
            DraftedRound("model", 7, 2, 2),  # a tree
        ]
    )
    assert timings.drafted_per_position == [4, 4, 2]
    assert timings.accepted_per_position == [3, 2, 1]
    assert timings.per_position_acceptance == [0.75, 0.5, 0.25]
    assert timings.mean_acceptance_length == 1 + 6 / 4
    assert timings.acceptance_rate == 6 / 15
    assert timings.drafters == {
        "model": DrafterTotals(n_rounds=3, n_drafted=13, n_accepted=6),
        "suffix": DrafterTotals(n_rounds=1, n_drafted=2, n_accepted=0),
    }


@given(st.lists(rounds(), max_size=8), st.lists(rounds(), max_size=8))
def test_sums_agree_with_the_rounds_they_are_of(
    first: list[DraftedRound], second: list[DraftedRound]
) -> None:
    timings = total(first) + total(second)
    assert timings == total(first + second) == total(second) + total(first)
    assert timings.draft_n == sum(totals.n_drafted for totals in timings.drafters.values())
    assert timings.draft_n_accepted == sum(timings.accepted_per_position)
    assert timings.n_drafted_rounds == len(first + second)
    assert timings.mean_acceptance_length == pytest.approx(1 + sum(timings.per_position_acceptance))
    assert timings.accepted_per_position == sorted(timings.accepted_per_position, reverse=True)
    assert all(
        a <= d for a, d in zip(timings.accepted_per_position, timings.drafted_per_position, strict=True)
    )
    assert msgspec.json.decode(msgspec.json.encode(timings), type=Timings) == timings


def test_addition_leaves_its_operands_alone() -> None:
    one = DraftedRound("model", 2, 2, 1).timings()
    before = msgspec.json.encode(one)
    sums = one + DraftedRound("model", 3, 3, 3).timings()
    sums.accepted_per_position.append(9)
    assert msgspec.json.encode(one) == before
    assert Timings().accepted_per_position == []
