"""Philox and the keys that random numbers hang on."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lucebox._kernels import rng
from lucebox.sampling import reference
from lucebox.sampling.random import Purpose, RoundRandom, fresh_seed

WORDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("implementation", [rng, reference], ids=["kernel", "twin"])
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that come with Random123, philox4x32 10
        ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(implementation: ModuleType, counter: str, key: str, expected: str) -> None:
    assert implementation.philox(words(counter), words(key)) == words(expected)


def words(text: str) -> tuple[int, ...]:
    return tuple(int(w, 16) for w in text.split())


@given(st.integers(0, 2**64 - 1), WORDS, WORDS, WORDS, WORDS)
def test_kernel_is_its_twin(seed: int, position: int, offset: int, sibling: int, purpose: int) -> None:
    u = rng.uniform(seed, position, offset, sibling, purpose)
    assert u == reference.uniform(seed, position, offset, sibling, purpose)
    assert 0.0 <= u < 1.0


@pytest.mark.parametrize("implementation", [rng, reference], ids=["kernel", "twin"])
def test_no_word_is_cut(implementation: ModuleType) -> None:
    for arguments in [(2**64, 0, 0, 0, 0), (0, 2**32, 0, 0, 0), (0, -1, 0, 0, 0), (0, 0, 0, 0, 2**32)]:
        with pytest.raises(OverflowError):
            implementation.uniform(*arguments)


def test_each_part_of_the_key_counts() -> None:
    draws = [
        RoundRandom(seed, position).uniform(offset, purpose, sibling)
        for seed, position, offset, sibling, purpose in product(
            (0, 1, 2**40), (0, 1), (0, 1), (0, 1), Purpose
        )
    ]
    draws += [
        RoundRandom(seed, 0).at_position(position, purpose)
        for seed, position, purpose in product((0, 1, 2**40), (0, 1), Purpose)
    ]
    assert len(set(draws)) == len(draws)


def test_a_draw_at_a_position_forgets_its_round() -> None:
    assert RoundRandom(5, 1).at_position(9, Purpose.TARGET) == RoundRandom(5, 8).at_position(
        9, Purpose.TARGET
    )


def test_seeds_are_taken_modulo_64_bits() -> None:
    assert RoundRandom(-1, 0).uniform(0, Purpose.DRAFT) == RoundRandom(2**64 - 1, 0).uniform(0, Purpose.DRAFT)
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_draws_are_uniform_along_each_part_of_the_key() -> None:
    n = 20_000
    along = {
        "seed": [RoundRandom(i, 3).uniform(1, Purpose.ACCEPT) for i in range(n)],
        "position": [RoundRandom(7, i).uniform(1, Purpose.ACCEPT) for i in range(n)],
        "offset": [RoundRandom(7, 3).uniform(i, Purpose.ACCEPT) for i in range(n)],
        "at": [RoundRandom(7, 3).at_position(i, Purpose.TARGET) for i in range(n)],
    }
    for name, draws in along.items():
        assert stats.kstest(draws, "uniform").pvalue > 1e-3, name
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / n**0.5, name
